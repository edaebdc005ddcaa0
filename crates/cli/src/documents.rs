//! The manual pages and the shells' completions, in packaging/. They are written from the command line's own tables by
//! `make docs`, and kept in the repository, so that installing needs nothing but the program.

mod completions;
mod line;
mod man;

use std::path::{Path, PathBuf};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Compares a directory with what it should hold, or writes it if that is asked for.
fn check(directory: &Path, files: &[(String, String)]) {
    let present = || -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    if std::env::var_os("BALANZA_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(directory).unwrap();
        for name in present().iter().filter(|&name| !files.iter().any(|(wanted, _)| wanted == name)) {
            std::fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, text) in files {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }
    for (name, text) in files {
        let path = directory.join(name);
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == *text, "{} is not what the program says: run `make docs`", path.display());
    }
    assert_eq!(present().len(), files.len(), "{} has files that are not written any more", directory.display());
}

#[test]
fn every_manual_page_is_documented_as_it_is() {
    check(&directory("man"), &man::pages());
}

#[test]
fn every_completion_is_documented_as_it_is() {
    check(&directory("completions"), &completions::scripts());
}
