//! Configurations of other balancers as nginx.conf.
//!
//! ```
//! let text = "defaults\n mode http\nlisten shop\n bind *:8080\n server a 10.0.0.1:80 weight 3\n server b 10.0.0.2:80\n";
//! let migration = balanza_migrate::haproxy(text, "haproxy.cfg");
//! assert!(migration.text.contains("server 10.0.0.1:80 weight=3;"));
//! assert!(migration.notes.is_empty());
//! ```
//!
//! [`haproxy`] is a function of the text alone. What has no counterpart is a [`Note`], and a comment in the result.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod haproxy;

pub use haproxy::{is_section, translate as haproxy};

/// A configuration that was carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The nginx.conf.
    pub text: String,
    /// What it lacks, by line.
    pub notes: Vec<Note>,
}

/// A line that has no counterpart, or one that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What is missing or differs.
    pub why: String,
}
