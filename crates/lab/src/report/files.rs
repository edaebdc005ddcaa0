//! The report as files.

use std::fs;
use std::io;
use std::path::Path;

use super::{csv, html, json, markdown, runs_csv};
use crate::environment::Environment;
use crate::record::Run;
use crate::summary::Summary;

/// Writes report.html, report.md with figures/*.svg, results.csv (Locust's columns), runs.csv and summary.json into a
/// directory, which is made if it is missing. Files of these names are replaced, each only when the new one is complete.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(summary: &Summary, environment: &Environment, runs: &[Run], directory: &Path) -> io::Result<()> {
    let figures = markdown::figures(summary);
    let pictures = directory.join("figures");
    fs::create_dir_all(&pictures).map_err(|error| at(&pictures, "make the directory", &error))?;
    let text = markdown::with_figures(summary, environment, &figures);
    let everything = json(summary, environment).map_err(io::Error::other)?;
    for figure in &figures {
        file(&pictures.join(format!("{}.svg", figure.name)), &figure.document)?;
    }
    file(&directory.join("report.md"), &text)?;
    file(&directory.join("results.csv"), &csv(summary))?;
    file(&directory.join("runs.csv"), &runs_csv(&summary.plan, runs))?;
    file(&directory.join("summary.json"), &everything)?;
    file(&directory.join("report.html"), &html(summary, environment))
}

/// Writes aside and renames, so that a full disk leaves the file that was there.
fn file(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("part");
    let written = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&aside);
        at(path, "write", &error)
    })
}

fn at(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn all_files_are_there_and_all_references_lead_to_one() {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("results");
        write(&sample::summary(), &sample::environment(), &sample::runs(), &results).unwrap();
        for name in ["report.html", "report.md", "results.csv", "runs.csv", "summary.json"] {
            assert!(results.join(name).is_file(), "{name}");
        }
        let text = fs::read_to_string(results.join("report.md")).unwrap();
        let references: Vec<&str> =
            text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default()).collect();
        assert!(references.len() > 6);
        for reference in &references {
            assert!(results.join(reference).is_file(), "{reference}");
        }
        let files = fs::read_dir(results.join("figures")).unwrap().count();
        assert_eq!(files, references.len(), "no file is left aside, no two figures have one name");
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(results.join("summary.json")).unwrap()).unwrap();
        assert_eq!(json["summary"]["plan"]["name"], "two-unequal");
        let read: Summary = serde_json::from_value(json["summary"].clone()).unwrap();
        assert!(read.checks == sample::summary().checks && read.cells.len() == sample::summary().cells.len());
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("runs.csv")).unwrap();
        let error = write(&sample::summary(), &sample::environment(), &[], directory.path()).unwrap_err();
        assert!(error.to_string().contains("runs.csv"), "{error}");
        assert!(!directory.path().join("runs.part").exists());
    }
}
