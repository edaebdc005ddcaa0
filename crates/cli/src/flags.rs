//! The command line in NGINX's form, letter by letter as NGINX reads it: `-tq`, `-c file` and `-cfile` are all right.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use balanza_supervisor::Order;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-?`, `-h`.
    pub help: bool,
    /// `-v` and `-V`.
    pub version: bool,
    /// `-V`.
    pub build: bool,
    /// `-t` and `-T`.
    pub test: bool,
    /// `-T`.
    pub dump: bool,
    /// `--json`.
    pub json: bool,
    /// `-q`.
    pub quiet: bool,
    /// `-s`.
    pub order: Option<Order>,
    /// `-p`.
    pub prefix: Option<PathBuf>,
    /// `-e`.
    pub error_log: Option<PathBuf>,
    /// `-c`.
    pub file: Option<PathBuf>,
    /// `-g`.
    pub globals: Option<String>,
}

/// A command line that is wrong, in NGINX's words.
#[derive(Debug, PartialEq, Eq)]
pub struct WrongFlag(String);

impl fmt::Display for WrongFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Flags {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// The first argument that is wrong.
    pub fn parse(arguments: &[OsString]) -> Result<Self, WrongFlag> {
        let mut flags = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.to_str() {
                Some("--help") => flags.help = true,
                Some("--version") => flags.version = true,
                Some("--json") => flags.json = true,
                Some(long) if long.starts_with("--") => {
                    let near = balanza_config::nearest(long, ["--help", "--json", "--version"]);
                    let hint =
                        near.map_or_else(|| "see `balanza -h`".to_string(), |near| format!("did you mean {near}?"));
                    return Err(WrongFlag(format!("invalid option: \"{long}\" ({hint})")));
                }
                _ => flags.letters(argument, &mut rest)?,
            }
        }
        if flags.json && (!flags.test || flags.dump) {
            return Err(WrongFlag("option \"--json\" is possible with \"-t\" only".to_string()));
        }
        Ok(flags)
    }

    fn letters(&mut self, argument: &OsStr, rest: &mut std::slice::Iter<'_, OsString>) -> Result<(), WrongFlag> {
        let Some(letters) = argument.as_bytes().strip_prefix(b"-") else {
            return Err(WrongFlag(format!("invalid option: \"{}\"", argument.display())));
        };
        for (index, &letter) in letters.iter().enumerate() {
            // The value of an option is what follows its letter, or else the next argument, unless that is empty.
            let mut value = |what: &str| {
                let attached = &letters[index + 1..];
                let value = if attached.is_empty() {
                    rest.next().cloned().filter(|value| !value.is_empty())
                } else {
                    Some(OsString::from_vec(attached.to_vec()))
                };
                value.ok_or_else(|| WrongFlag(format!("option \"-{}\" requires {what}", char::from(letter))))
            };
            match letter {
                b'?' | b'h' => (self.help, self.version) = (true, true),
                b'v' => self.version = true,
                b'V' => (self.version, self.build) = (true, true),
                b't' => self.test = true,
                b'T' => (self.test, self.dump) = (true, true),
                b'q' => self.quiet = true,
                b'p' => return value("directory name").map(|value| self.prefix = Some(value.into())),
                b'e' => return value("file name").map(|value| self.error_log = Some(value.into())),
                b'c' => return value("file name").map(|value| self.file = Some(value.into())),
                b'g' => {
                    let value = value("parameter")?;
                    let wrong = |value: OsString| WrongFlag(format!("option \"-g {}\" is not UTF-8", value.display()));
                    self.globals = Some(value.into_string().map_err(wrong)?);
                    return Ok(());
                }
                b's' => {
                    let value = value("parameter")?;
                    self.order = Some(match value.to_str() {
                        Some("stop") => Order::Stop,
                        Some("quit") => Order::Quit,
                        Some("reopen") => Order::Reopen,
                        Some("reload") => Order::Reload,
                        _ => return Err(WrongFlag(format!("invalid option: \"-s {}\"", value.display()))),
                    });
                    return Ok(());
                }
                _ => return Err(WrongFlag(format!("invalid option: \"{}\"", char::from(letter)))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Flags, String> {
        let arguments: Vec<OsString> = line.iter().map(OsString::from).collect();
        Flags::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn right_lines() {
        let file = |name: &str| Flags { file: Some(name.into()), ..Flags::default() };
        let test = Flags { test: true, ..Flags::default() };
        let help = Flags { help: true, version: true, ..Flags::default() };
        let table: Vec<(&[&str], Flags)> = vec![
            (&[], Flags::default()),
            (&["-"], Flags::default()),
            (&["-c", "a.conf"], file("a.conf")),
            (&["-ca.conf"], file("a.conf")),
            (&["-c", "-t"], file("-t")),
            (&["-tq"], Flags { quiet: true, ..test }),
            (&["-qt", "-c", "x"], Flags { quiet: true, test: true, ..file("x") }),
            (&["-t", "--json"], Flags { json: true, ..Flags { test: true, ..Flags::default() } }),
            (&["-tcx"], Flags { test: true, ..file("x") }),
            (&["-T"], Flags { dump: true, test: true, ..Flags::default() }),
            (&["-?"], Flags { help: true, version: true, ..Flags::default() }),
            (&["-h"], help),
            (&["--help"], Flags { help: true, ..Flags::default() }),
            (&["-V"], Flags { version: true, build: true, ..Flags::default() }),
            (&["-s", "reload"], Flags { order: Some(Order::Reload), ..Flags::default() }),
            (&["-sstop"], Flags { order: Some(Order::Stop), ..Flags::default() }),
            (&["-s", "quit"], Flags { order: Some(Order::Quit), ..Flags::default() }),
            (&["-s", "reopen"], Flags { order: Some(Order::Reopen), ..Flags::default() }),
            (
                &["-p/x", "-e", "stderr"],
                Flags { prefix: Some("/x".into()), error_log: Some("stderr".into()), ..Flags::default() },
            ),
            (&["-g", "daemon off;"], Flags { globals: Some("daemon off;".into()), ..Flags::default() }),
            (&["-c", "a", "-c", "b"], file("b")),
        ];
        for (line, flags) in table {
            assert_eq!(parse(line), Ok(flags), "{line:?}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_in_the_words_of_nginx() {
        for (line, complaint) in [
            (&["x"][..], "invalid option: \"x\""),
            (&["-t", "x"], "invalid option: \"x\""),
            (&["-x"], "invalid option: \"x\""),
            (&["-tx"], "invalid option: \"x\""),
            (&["--bogus"], "invalid option: \"--bogus\" (see `balanza -h`)"),
            (&["--versoin"], "invalid option: \"--versoin\" (did you mean --version?)"),
            (&["--json"], "option \"--json\" is possible with \"-t\" only"),
            (&["-T", "--json"], "option \"--json\" is possible with \"-t\" only"),
            (&["-c"], "option \"-c\" requires file name"),
            (&["-e"], "option \"-e\" requires file name"),
            (&["-p"], "option \"-p\" requires directory name"),
            (&["-g"], "option \"-g\" requires parameter"),
            (&["-s"], "option \"-s\" requires parameter"),
            (&["-s", "hup"], "invalid option: \"-s hup\""),
            (&["-c", ""], "option \"-c\" requires file name"),
        ] {
            assert_eq!(parse(line), Err(complaint.to_string()), "{line:?}");
        }
    }
}
