//! Simulates every algorithm in every situation and writes data/advice.txt: `make advice`, or with the names of some
//! algorithms only their rows.
#![allow(missing_docs)]

use balanza_simulator::advice::Table;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let table = Table::simulate(&only, |situation| eprintln!("{}", situation.scenario))?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/advice.txt");
    std::fs::write(path, table.to_string())?;
    Ok(())
}
