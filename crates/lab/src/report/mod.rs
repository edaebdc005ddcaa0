//! What an experiment came to, for people and for programs: a page, a terminal's text, Markdown, tables.
//!
//! Everything here reads a [`Summary`]; nothing measures or decides. [`html`] is one file that needs nothing else;
//! [`csv`] has the columns of Locust's `_stats.csv`; [`json`] has everything; [`compare`] sets two results side by side.

mod charts;
mod claims;
mod compare;
mod csv;
mod distributions;
mod events;
mod files;
mod grid;
mod markdown;
mod page;
#[cfg(test)]
mod sample;
mod tables;
mod terminal;
mod words;

pub use compare::{Side, compare};
pub use csv::{csv, runs_csv};
pub use files::write;
pub use markdown::markdown;
pub use page::html;
pub use terminal::terminal;

use crate::environment::Environment;
use crate::summary::Summary;

/// Everything, for programs: `{"summary": …, "environment": …}`.
pub fn json(summary: &Summary, environment: &Environment) -> serde_json::Result<String> {
    #[derive(serde::Serialize)]
    struct Everything<'a> {
        summary: &'a Summary,
        environment: &'a Environment,
    }
    serde_json::to_string_pretty(&Everything { summary, environment })
}
