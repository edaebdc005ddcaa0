//! Loads a configuration and writes its diagnostics to the log.

use balanza_config::model::Config;
use balanza_config::{Options, Severity, Source, load};

use crate::Failed;
use crate::log::Log;

/// Loads a configuration.
///
/// # Errors
/// Every error is in the log, with its place.
pub fn first(options: &Options, source: &dyn Source, log: &Log) -> Result<Config, Failed> {
    let (config, diagnostics) = load(source, options);
    for diagnostic in &diagnostics {
        log.diagnostic(diagnostic);
    }
    config.ok_or(Failed)
}

/// Loads a configuration that has been checked before, without repeating its warnings.
///
/// # Errors
/// The errors, one a line.
pub fn again(options: &Options, source: &dyn Source) -> anyhow::Result<Config> {
    let (config, diagnostics) = load(source, options);
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    config.ok_or_else(|| anyhow::anyhow!(errors.map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}
