//! The nginx.conf dialect: from text to a typed configuration.
//!
//! ```
//! use balanza_config::{Bundle, Options, load};
//!
//! let mut files = Bundle::default();
//! files.add_file("/etc/balanza.conf", "events { } http { server { listen 8080; return 204; } }");
//! let (config, problems) = load(&files, &Options::new("/usr/share/balanza", "/etc/balanza.conf"));
//! assert!(problems.is_empty());
//! assert_eq!(config.unwrap().http.listens.len(), 1);
//! ```
//!
//! [`load`] reads a configuration from a [`Source`] and returns the [`model::Config`] with every default, inheritance and
//! address resolved, and all [`Diagnostic`]s: it never stops at the first error. It opens no socket and starts nothing.

#![forbid(unsafe_code)]
// A write to a standard error that is closed or full panics in these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod address;
pub mod at_run_time;
mod block;
mod check;
mod client;
mod contexts;
mod core;
mod diagnostics;
mod directives;
mod drafts;
mod geo;
mod http;
mod keyval;
mod lexer;
mod listen;
mod load;
pub mod log_text;
mod logs;
mod map;
pub mod model;
pub mod names;
pub mod networks;
mod outline;
mod parameter;
mod process;
mod reading;
pub mod regex;
mod resolver;
mod source;
mod stream;
mod syslog;
pub mod template;
mod temporary;
#[cfg(test)]
mod tests;
mod tls;
mod traps;
mod tree;
mod tuning;
mod upstream;
mod values;
mod variables;

pub use balanza_balancing::registry::nearest;
pub use client::browser_version;
pub use contexts::{load, read_method, read_servers};
pub use diagnostics::{Diagnostic, Place, Severity};
pub use directives::{Arguments, Context, Directive, State, directives, directives_markdown};
pub use load::Options;
pub use outline::{Outline, OutlineDirective, OutlineFormat, OutlineUpstream, outline, statements};
pub use source::{Bundle, FileSystem, Recorder, Replay, Secret, Secrets, Source, read_file};
pub use upstream::write_servers;
