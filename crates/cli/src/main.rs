//! The `balanza` command.

#![forbid(unsafe_code)]

mod algorithms;
mod api;
mod cert;
mod commands;
mod doctor;
#[cfg(test)]
mod documents;
mod engine;
mod explain;
mod flags;
mod installation;
mod lab;
mod migrate;
mod operate;
mod output;
mod recommend;
mod simulate;
mod version;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use balanza_config::Options;
use balanza_config::log_text::OneLine;
use balanza_config::model::DIALECT_VERSION;
use balanza_supervisor::{Console, Invocation, Log, Order};

use flags::Flags;
use installation::{Installation, Surroundings};

/// Gives memory back to the system some seconds after it was freed: see docs/design/memory.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A thread of the allocator gives memory back also while the process sleeps, as the supervisor does after each reload.
fn settled() {
    // Without it the process only stays larger.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}

fn main() -> ExitCode {
    if balanza_supervisor::is_worker() {
        return balanza_supervisor::worker(engine::start);
    }
    let arguments = balanza_supervisor::arguments();
    let rest = arguments.get(1..).unwrap_or_default();
    if let Some(word) = rest.first().filter(|word| !word.as_bytes().starts_with(b"-")) {
        return match word.to_str() {
            // `balanza help demo` is `balanza demo --help`.
            Some("help") => match rest.get(1) {
                None => obey(&Flags { help: true, ..Flags::default() }, arguments),
                Some(flag) if flag == "--all" => print(&help(LONG_HELP, &installation(&Flags::default()))),
                Some(command) if commands::exists(command) => {
                    commands::run(&[arguments[0].clone(), command.clone(), "--help".into()])
                }
                Some(command) => no_command(command),
            },
            _ if commands::exists(word) => commands::run(&arguments),
            _ => no_command(word),
        };
    }
    match Flags::parse(rest) {
        Ok(flags) => obey(&flags, arguments),
        Err(wrong) => {
            eprintln!("balanza: {wrong}");
            ExitCode::FAILURE
        }
    }
}

/// Says that there is no such command, and what may be meant.
fn no_command(word: &OsStr) -> ExitCode {
    eprintln!("balanza: there is no command \"{}\"; there are: {}, help", word.display(), commands::names().join(", "));
    if std::path::Path::new(word).is_file() {
        eprintln!("balanza: to serve the configuration in that file: balanza -c {}", word.display());
    }
    eprintln!("balanza: \"balanza help\" tells more");
    ExitCode::FAILURE
}

fn installation(flags: &Flags) -> Installation {
    let privileged = Options::new("/", "/").with_process().privileged;
    Installation::new(flags, &Surroundings::of_this_process(privileged))
}

fn obey(flags: &Flags, arguments: Vec<OsString>) -> ExitCode {
    let installation = installation(flags);
    if flags.help {
        return print(&help(SHORT_HELP, &installation));
    }
    if flags.version {
        // On standard error, where NGINX has it and tools look for it.
        eprint!("{}", version::version());
        if flags.build {
            eprint!("{}{}", version::TLS, version::configure_arguments(&installation));
        }
        return ExitCode::SUCCESS;
    }
    let options = installation.options(flags);
    let console = if flags.json { Console::Json } else { Console::detect(flags.quiet) };
    if flags.test {
        installation.make_log_directory();
        return test(flags, &options, console);
    }
    if let Some(order) = flags.order {
        return send(&options, order, console);
    }
    installation.make_log_directory();
    let early_log =
        flags.error_log.is_some().then_some(installation.error_log).filter(|path| path != OsStr::new("stderr"));
    balanza_supervisor::run(Invocation { options, arguments, console, early_log, start: engine::start, settled })
}

fn test(flags: &Flags, options: &Options, console: Console) -> ExitCode {
    let log = Log::starting(console);
    let result = balanza_supervisor::test(options, &log);
    let file = options.file.display();
    let file = OneLine(&file);
    if flags.dump && result.is_ok() {
        let mut out = io::stdout().lock();
        if balanza_supervisor::dump(options, &mut out).and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    match result {
        Ok(()) => {
            if !flags.quiet && !flags.json {
                eprintln!("balanza: the configuration file {file} syntax is ok");
                eprintln!("balanza: configuration file {file} test is successful");
            }
            ExitCode::SUCCESS
        }
        // The problems have been printed, and the exit code says the rest.
        Err(balanza_supervisor::Failed) if flags.json => ExitCode::FAILURE,
        Err(balanza_supervisor::Failed) => {
            eprintln!("balanza: configuration file {file} test failed");
            ExitCode::FAILURE
        }
    }
}

fn send(options: &Options, order: Order, console: Console) -> ExitCode {
    match balanza_supervisor::send(options, order, &Log::starting(console)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(balanza_supervisor::Failed) => ExitCode::FAILURE,
    }
}

/// `--help`: fits a screen of 24 lines.
const SHORT_HELP: &str = include_str!("help.txt");
/// `help --all`, and the manual page balanza(1).
const LONG_HELP: &str = include_str!("help-all.txt");

fn help(text: &str, installation: &Installation) -> String {
    let values = [
        ("{version}", env!("CARGO_PKG_VERSION").to_string()),
        ("{dialect}", DIALECT_VERSION.to_string()),
        ("{prefix}", installation.prefix.display().to_string()),
        ("{file}", installation.file.display().to_string()),
        ("{error_log}", installation.error_log.display().to_string()),
        ("{access_log}", installation.access_log.display().to_string()),
        ("{pid}", installation.pid.display().to_string()),
    ];
    let mut text = text.to_string();
    for (name, value) in values {
        text = text.replace(name, &value);
    }
    text
}

fn print(text: &str) -> ExitCode {
    if output::print(text).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
