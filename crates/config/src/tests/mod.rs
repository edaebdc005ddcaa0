//! Tests of what a configuration is made of; tests of whole configurations are in `tests/`.

mod lexing;
mod lookup;
mod values;

use crate::model::Config;
use crate::source::Bundle;
use crate::{Options, load};

/// Loads a text that must be free of errors.
pub(crate) fn config(text: &str) -> Config {
    let mut files = Bundle::default();
    files.add_file("/n.conf", text);
    let (config, problems) = load(&files, &Options::new("/", "/n.conf"));
    config.unwrap_or_else(|| panic!("{text}: {problems:?}"))
}
