//! Simulates every algorithm in every situation and writes data/advice.txt: `make advice`.
#![allow(missing_docs)]

use balanza_simulator::advice::Table;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Table::simulate(|situation| eprintln!("{}", situation.scenario))?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/advice.txt");
    std::fs::write(path, table.to_string())?;
    Ok(())
}
