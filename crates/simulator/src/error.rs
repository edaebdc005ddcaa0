//! What is wrong with a scenario.

use balanza_balancing::FleetError;

/// A scenario that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not TOML, or not a scenario: with the place.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Values that have no meaning, alone or together.
    #[error("{0}")]
    Value(String),
    /// The program that an algorithm asks for each choice does not start, or ended, or gave no answer.
    #[error("the program \"{program}\": {error}")]
    Program {
        /// Its command.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// A list of servers that cannot be one.
    #[error("{0}")]
    Fleet(#[from] FleetError),
    /// A file that cannot be read.
    #[error("{file}: {error}")]
    File {
        /// Its name.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// Ended early.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    pub(crate) fn value(text: impl Into<String>) -> Error {
        Error::Value(text.into())
    }
}
