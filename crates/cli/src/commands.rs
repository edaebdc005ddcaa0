//! The commands beside serving.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::failure;
use crate::{algorithms, api, cert, doctor, explain, lab, migrate, operate, recommend, simulate};

/// Load balancer that reads nginx.conf.
#[derive(Parser)]
#[command(
    name = "balanza",
    after_help = "Without a command balanza serves, with NGINX's options: see balanza -h.",
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(balanza_lab::demo::Options),
    Target(Box<balanza_lab::target::Options>),
    Algorithms(algorithms::Options),
    Simulate(Box<simulate::Options>),
    Recommend(Box<recommend::Options>),
    Lab(lab::Options),
    Cert(cert::Options),
    Api(api::Options),
    Top(api::top::Options),
    Status(operate::Status),
    Drain(operate::Drain),
    Undrain(operate::Undrain),
    SetWeight(operate::SetWeight),
    Experiment(operate::Experiment),
    Explain(explain::Options),
    Doctor(doctor::Options),
    Migrate(migrate::Options),
}

/// The command line of all commands.
pub fn command() -> clap::Command {
    Line::command()
}

/// The names of all commands.
pub fn names() -> Vec<String> {
    command().get_subcommands().map(|command| command.get_name().to_string()).collect()
}

/// Whether this is the name of a command.
pub fn exists(word: &OsStr) -> bool {
    names().iter().any(|name| word == name.as_str())
}

/// Runs the command of this command line, whose first word is the program's name.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let result = match Line::parse_from(arguments).command {
        Command::Demo(options) => balanza_lab::demo::run(options),
        Command::Target(options) => balanza_lab::target::run(*options),
        Command::Algorithms(options) => algorithms::run(&options),
        Command::Simulate(options) => simulate::run(*options),
        Command::Recommend(options) => recommend::run(&options),
        Command::Lab(options) => return lab::run(options),
        Command::Cert(options) => cert::run(&options),
        Command::Api(options) => api::run(&options),
        Command::Top(options) => api::top::run(&options),
        Command::Status(options) => return operate::status(&options),
        Command::Drain(options) => return operate::drain(&options),
        Command::Undrain(options) => return operate::undrain(&options),
        Command::SetWeight(options) => return operate::set_weight(&options),
        Command::Experiment(options) => return operate::experiment(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Doctor(options) => return doctor::run(&options),
        Command::Migrate(options) => return migrate::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
