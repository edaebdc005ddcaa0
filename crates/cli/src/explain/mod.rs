//! `balanza explain`: where a request went, why, and where its time went.

mod account;
mod logs;
mod report;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use self::account::Account;
use self::logs::Logs;
use crate::api::ADDRESS;
use crate::api::client::Address;
use crate::flags::Flags;
use crate::{operate, output};

/// Explain where a request went, why, and where its time went.
///
/// Searches the access logs of the configuration for a request by its $request_id (or $http_x_request_id, if the format
/// has that), and shows each attempt with its server, status, times and reason, what they mean together, the lines of the
/// error log about the connection, and how the servers are now.
///
///   balanza explain 7d0c2a0a4d1f0d9a5c6d1c1f6f8f3a11
///   balanza explain 7d0c2a0a4d1f0d9a5c6d1c1f6f8f3a11 logs/access.log.1 logs/access.log.2.gz
///
/// The exit code is 0 if the request was found, and 1 otherwise.
#[derive(Args)]
pub struct Options {
    /// The id of the request, as the log has it.
    id: String,
    /// Access logs to be searched, also compressed ones; without them those of the configuration.
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The configuration; without it the one that balanza serves.
    #[arg(short = 'c', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where relative paths in the configuration start.
    #[arg(short = 'p', value_name = "DIRECTORY")]
    prefix: Option<PathBuf>,
    /// Directives in front of the configuration.
    #[arg(short = 'g', value_name = "DIRECTIVES")]
    globals: Option<String>,
    /// Where the API is that is asked how the servers are now.
    #[arg(long, value_name = "URL", default_value = ADDRESS)]
    url: Address,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Searches and prints.
///
/// # Errors
/// No log has the request, or none can be searched for it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let flags = Flags {
        file: options.file.clone(),
        prefix: options.prefix.clone(),
        globals: options.globals.clone(),
        ..Flags::default()
    };
    let installation = crate::installation(&flags);
    let logs = Logs::of(&installation.options(&flags), &options.logs)?;
    let Some(record) = logs.find(&options.id)? else {
        let searched: Vec<String> = logs.access.iter().map(|log| log.path.display().to_string()).collect();
        bail!(
            "no request has the id {} in {}; name logs that were rotated away on the command line",
            options.id,
            searched.join(", ")
        );
    };
    let account = Account::of(&record);
    let errors = record.connection.as_deref().map(|connection| logs.errors(connection)).unwrap_or_default();
    // The explanation holds without the API.
    let servers = if account.attempts.is_empty() { Ok(Vec::new()) } else { operate::servers(&options.url) };
    let text = if options.json {
        format!("{:#}\n", report::json(&record, &account, &errors, &servers))
    } else {
        report::text(&record, &account, &errors, &servers, output::colour())
    };
    output::print(&text)
}
