//! The answer as text, as a page, and as JSON.

mod page;
mod text;
mod words;

use std::fs;
use std::io;
use std::path::Path;

use crate::study::Study;

pub use page::html;
pub use text::text;

/// Writes report.html and results.json into a directory, which is made if it is missing.
///
/// # Errors
/// The file system's.
pub fn write(study: &Study, diff: &str, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("report.html"), html(study, diff))?;
    fs::write(directory.join("results.json"), json(study, diff)?)
}

/// Everything, for programs.
///
/// # Errors
/// None in practice.
pub fn json(study: &Study, diff: &str) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(study)?;
    if let Some(object) = value.as_object_mut() {
        let index = words::chosen(study);
        object.insert("recommended".into(), serde_json::to_value(&study.outcomes[index].candidate)?);
        object.insert("diff".into(), diff.into());
    }
    serde_json::to_string_pretty(&value)
}
