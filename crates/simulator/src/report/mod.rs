//! Results as files: a table for programs, everything for programs, and a report for people.

mod csv;
mod figures;
mod page;
mod words;

use std::fs;
use std::io;
use std::path::Path;

use crate::result::{Bins, Comparison};

pub use csv::field;
pub use words::{FAILURES, at, interval, part, time, verdicts};

/// Writes results.csv, results.json, report.html and the report's first picture, picture.svg, into a directory, which is made
/// if it is missing. Files of these names are replaced.
pub fn write(comparison: &Comparison, directory: &Path) -> io::Result<()> {
    let json = serde_json::to_string_pretty(comparison)?;
    files(directory, &csv::comparison(comparison), &json, &html(comparison), &picture(comparison))
}

/// The same for balls into bins.
pub fn write_bins(bins: &[Bins], directory: &Path) -> io::Result<()> {
    let picture = figures::bins_deviation(bins).document();
    files(directory, &csv::bins(bins), &serde_json::to_string_pretty(bins)?, &page::bins(bins), &picture)
}

/// The report of a comparison: one HTML file with everything in it.
pub fn html(comparison: &Comparison) -> String {
    page::comparison(comparison)
}

/// The picture of a comparison that says most, as an SVG file: times by load; of the only load, what happens over time
/// if there are events, else the tails.
pub fn picture(comparison: &Comparison) -> String {
    figures::first(comparison).document()
}

fn files(directory: &Path, csv: &str, json: &str, html: &str, picture: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("results.csv"), csv)?;
    fs::write(directory.join("results.json"), json)?;
    fs::write(directory.join("picture.svg"), picture)?;
    fs::write(directory.join("report.html"), html)
}
