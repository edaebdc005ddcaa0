//! The whole command line as clap knows it: the commands, and the options that `flags` reads by itself.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

/// A flag in NGINX's form.
pub struct Flag {
    pub letter: char,
    /// The letter, for clap.
    name: &'static str,
    pub value: Option<(&'static str, ValueHint)>,
    pub about: &'static str,
}

const fn plain(name: &'static str, about: &'static str) -> Flag {
    Flag { letter: name.as_bytes()[0] as char, name, value: None, about }
}

const fn valued(name: &'static str, value: &'static str, hint: ValueHint, about: &'static str) -> Flag {
    Flag { letter: name.as_bytes()[0] as char, name, value: Some((value, hint)), about }
}

pub const OPTIONS: [Flag; 10] = [
    plain("t", "Test the configuration"),
    plain("T", "Test the configuration and print its files"),
    plain("q", "Print errors only"),
    plain("v", "Print the version"),
    plain("V", "Print the version, the paths and the modules"),
    valued("c", "file", ValueHint::FilePath, "The configuration"),
    valued("p", "directory", ValueHint::DirPath, "Where relative paths in the configuration start"),
    valued("e", "file", ValueHint::FilePath, "The error log until the configuration names one"),
    valued("g", "directives", ValueHint::Other, "Directives in front of the configuration"),
    valued("s", "signal", ValueHint::Other, "Signal the running balanza"),
];

/// What `-s` takes.
pub const SIGNALS: [&str; 4] = ["stop", "quit", "reopen", "reload"];

/// The command line, with which completions are written.
pub fn line() -> Command {
    // clap wants names that live as long as the program.
    let commands = crate::commands::names().into_iter().map(|name| &*name.leak());
    let help = Command::new("help")
        .about("Print the help of balanza or of a command")
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("Print the whole manual"))
        .arg(Arg::new("command").value_parser(PossibleValuesParser::new(commands)).help("A command"));
    let mut line = crate::commands::command().subcommand_required(false).version(env!("CARGO_PKG_VERSION"));
    for option in OPTIONS {
        let mut argument = Arg::new(option.name).short(option.letter).help(option.about);
        argument = match option.value {
            None => argument.action(ArgAction::SetTrue),
            Some((name, hint)) => argument.value_name(name).value_hint(hint),
        };
        if option.letter == 's' {
            argument = argument.value_parser(SIGNALS);
        }
        line = line.arg(argument);
    }
    // Balanza's -V says more than clap's.
    let version = Arg::new("version").long("version").action(ArgAction::Version).help("Print the version");
    line.disable_version_flag(true).arg(version).subcommand(help)
}

#[test]
fn options_are_those_that_are_read_and_explained() {
    for option in OPTIONS {
        let mut words = vec![format!("-{}", option.letter)];
        match option.letter {
            's' => words.push(SIGNALS[0].into()),
            _ => words.extend(option.value.map(|(name, _)| name.into())),
        }
        let words: Vec<_> = words.into_iter().map(Into::into).collect();
        assert!(crate::flags::Flags::parse(&words).is_ok_and(|flags| flags != Default::default()), "{words:?}");
        for help in [crate::SHORT_HELP, crate::LONG_HELP] {
            assert!(help.contains(&format!("-{}", option.letter)), "-{}", option.letter);
        }
    }
    for signal in SIGNALS {
        let words = ["-s".into(), signal.into()];
        assert!(crate::flags::Flags::parse(&words).is_ok_and(|flags| flags.order.is_some()), "{signal}");
        assert!(crate::SHORT_HELP.contains(signal) && crate::LONG_HELP.contains(signal), "{signal}");
    }
    // The other way: a letter that is read is one of these.
    for letter in (b'!'..=b'~').map(char::from).filter(|letter| !"-?h".contains(*letter)) {
        let words = [format!("-{letter}").into(), "stop".into()];
        let read = crate::flags::Flags::parse(&words).is_ok() || crate::flags::Flags::parse(&words[..1]).is_ok();
        assert_eq!(read, OPTIONS.iter().any(|option| option.letter == letter), "-{letter}");
    }
    line().debug_assert();
}
