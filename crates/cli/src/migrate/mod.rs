//! `balanza migrate`: from NGINX or HAProxy to Balanza.

mod differences;
mod haproxy;
mod moving;
mod nginx;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::output;

/// Move over from NGINX or HAProxy.
///
/// Without a file: looks for the NGINX of this machine, reads its configuration, and says on one page what works, what
/// differs and what is missing, with the commands to go over and back without a refused connection. With an nginx.conf:
/// the same for that file.
///
/// With a haproxy.cfg: writes it as nginx.conf. What has no counterpart is a comment with its line.
///
/// The exit code is 0 if everything works, 1 if lines of HAProxy have no counterpart, 2 if Balanza cannot serve the
/// configuration.
///
///     balanza migrate
///     balanza migrate /etc/nginx/nginx.conf
///     balanza migrate /etc/haproxy/haproxy.cfg -o nginx.conf
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// An nginx.conf or a haproxy.cfg.
    file: Option<PathBuf>,
    /// What the file is; without this its text says so.
    #[arg(long, value_name = "PROGRAM")]
    from: Option<Program>,
    /// With a haproxy.cfg: where the result goes instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// NGINX's program.
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    Nginx,
    Haproxy,
}

impl Program {
    /// The program of a text: HAProxy's begins with a section, whose line has no brace and no semicolon.
    fn of(text: &str) -> Program {
        // ".if" and the like may stand before a section.
        let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(['#', '.']));
        let is_section = |line: &str| {
            let word = line.split_whitespace().next().unwrap_or_default();
            balanza_migrate::is_section(word) && !line.contains(['{', ';'])
        };
        if first.is_some_and(is_section) { Program::Haproxy } else { Program::Nginx }
    }
}

/// Reads and prints.
pub fn run(options: &Options) -> ExitCode {
    let done = match &options.file {
        None => nginx::page(None, options.nginx.as_deref(), options.json),
        // Comments may be in any encoding.
        Some(file) => match std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
            Err(error) => Err(anyhow::anyhow!("{}: {error}", file.display())),
            Ok(text) => match options.from.unwrap_or_else(|| Program::of(&text)) {
                Program::Nginx => nginx::page(Some(file), options.nginx.as_deref(), options.json),
                Program::Haproxy => haproxy::write(&text, file, options.output.as_deref(), options.json),
            },
        },
    };
    done.unwrap_or_else(|error| {
        output::failure(&error);
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart() {
        assert_eq!(Program::of("# x\nglobal\n  daemon\n"), Program::Haproxy);
        assert_eq!(Program::of("frontend web\n bind :80\n"), Program::Haproxy);
        assert_eq!(Program::of("events { }\nhttp { server { listen 80; } }\n"), Program::Nginx);
        assert_eq!(Program::of("server {\n    listen 80;\n}\n"), Program::Nginx);
        assert_eq!(Program::of("server {\n    listen 443 ssl\n        reuseport;\n}\n"), Program::Nginx);
        assert_eq!(Program::of(".if defined(X)\n.endif\nuserlist u\n user a\nlisten a\n"), Program::Haproxy);
        assert_eq!(Program::of("log-profile p\n on any\nlisten a\n"), Program::Haproxy);
        assert_eq!(Program::of(""), Program::Nginx);
    }
}
