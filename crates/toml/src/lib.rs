//! TOML files that users write: [`read`] reports everything that is wrong with the form of a file at once, [`Places`]
//! finds the line of a value for what is wrong with its meaning.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod places;
mod read;

pub use places::Places;
pub use read::{Error, read, words};
