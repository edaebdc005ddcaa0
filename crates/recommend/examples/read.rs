//! How long a large log takes: `read FILE`, or `read LINES FILE` to write one first.
#![allow(clippy::print_stdout, missing_docs, reason = "its output is a line")]

use std::io::Write as _;
use std::time::Instant;

use balanza_recommend::read::{Input, read};
use balanza_recommend::trial::Truth;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.last().ok_or("read [LINES] FILE")?;
    if let [lines, _] = &arguments[..] {
        let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
        let truth = Truth::sample();
        let mut left: usize = lines.parse()?;
        // A hundred thousand are drawn, and written as often as it takes.
        let text = truth.lines(left.min(100_000));
        while left > 0 {
            for line in text.lines().take(left) {
                writeln!(out, "{line}")?;
                left -= 1;
            }
        }
        return Ok(());
    }
    let begin = Instant::now();
    let log = read(&Input { files: vec![file.into()], ..Input::default() }, &Default::default())?;
    println!("{} requests in {:.1} s", log.requests, begin.elapsed().as_secs_f64());
    Ok(())
}
