//! The commands, as NGINX performs them.

use std::fmt::Arguments;
use std::rc::Rc;

use balanza_config::log_text::Escaped;
use balanza_config::regex::{Captures, Regex};

use super::page::{Condition, Due, Page};
use super::parser::{Command, MOST_PARAMETERS};
use super::text::{Encoding, Failed, evaluate, target, variable};
use super::{Common, Host};

/// What a page asks to be put at the place where it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Include {
    /// The path.
    pub path: Vec<u8>,
    /// The arguments.
    pub args: Vec<u8>,
    /// What answers in the place of an error.
    pub stub: Option<Vec<u8>>,
    /// The variable that the response becomes the value of, instead of being put there.
    pub variable: Option<Vec<u8>>,
    /// The page goes on when the response is complete.
    pub waits: bool,
}

/// What is left to do when a command was performed.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// A subrequest.
    Include(Include),
}

/// A command by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Include,
    Echo,
    Config,
    Set,
    If,
    Elif,
    Else,
    Endif,
    Block,
    Endblock,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"include" => Kind::Include,
            b"echo" => Kind::Echo,
            b"config" => Kind::Config,
            b"set" => Kind::Set,
            b"if" => Kind::If,
            b"elif" => Kind::Elif,
            b"else" => Kind::Else,
            b"endif" => Kind::Endif,
            b"block" => Kind::Block,
            b"endblock" => Kind::Endblock,
            _ => return None,
        })
    }

    /// The parameters it may have, and how many of them, from the first on, it must have.
    fn parameters(self) -> (&'static [&'static str], usize) {
        match self {
            Kind::Include => (&["virtual", "file", "wait", "set", "stub"], 0),
            Kind::Echo => (&["var", "default", "encoding"], 1),
            Kind::Config => (&["errmsg", "timefmt"], 0),
            Kind::Set => (&["var", "value"], 2),
            Kind::If | Kind::Elif => (&["expr"], 1),
            Kind::Block => (&["name"], 1),
            Kind::Else | Kind::Endif | Kind::Endblock => (&[], 0),
        }
    }

    /// Where in an `if` it may stand at the latest, if it belongs to one.
    fn belongs_to(self) -> Option<Condition> {
        match self {
            Kind::Elif | Kind::Else => Some(Condition::If),
            Kind::Endif => Some(Condition::Else),
            _ => None,
        }
    }
}

/// The values of a command's parameters, by their places in [`Kind::parameters`].
type Values<'a> = [Option<&'a [u8]>; 5];

fn failed<T>(host: &impl Host, message: Arguments<'_>) -> Result<T, Failed> {
    host.report(message);
    Err(Failed)
}

impl Page {
    /// Performs a command. Its text goes out with that of the page.
    pub fn perform(&mut self, due: &Due, host: &mut impl Host) -> Effect {
        let performed = match due {
            Due::Malformed(reason) => failed(host, format_args!("{reason}")),
            Due::Command(command) => self.perform_command(command, host),
        };
        if std::mem::take(&mut self.block_is_full) {
            host.report(format_args!("the blocks of a page are too large, and one is cut off"));
        }
        performed.unwrap_or_else(|Failed| {
            self.fail();
            Effect::None
        })
    }

    fn perform_command(&mut self, command: &Command, host: &mut impl Host) -> Result<Effect, Failed> {
        let name = Escaped(&command.name);
        let Some(kind) = Kind::of(&command.name) else {
            return match self.outputs {
                true => failed(host, format_args!("invalid SSI command: \"{name}\"")),
                false => Ok(Effect::None),
            };
        };
        if !self.outputs && kind != Kind::Endblock {
            if self.in_block {
                // It is performed where the block is used.
                self.take_for_block(&written(command));
                return Ok(Effect::None);
            }
            if kind.belongs_to().is_none() {
                return Ok(Effect::None);
            }
        }
        if let Some(latest) = kind.belongs_to()
            && (self.condition == Condition::None || self.condition > latest)
        {
            return match self.outputs {
                true => failed(host, format_args!("invalid context of SSI command: \"{name}\"")),
                false => Ok(Effect::None),
            };
        }
        let values = values(kind, command, host)?;
        let common = Rc::clone(&self.common);
        match kind {
            Kind::Include => return include(&values, &common, host).map(Effect::Include),
            Kind::Echo => self.echo(&values, host)?,
            Kind::Config => {
                if let Some(format) = values[1] {
                    host.set_time_format(format);
                }
                if let Some(text) = values[0] {
                    self.error = text.to_vec();
                }
            }
            Kind::Set => {
                let value = evaluate(values[1].unwrap_or_default(), &common, host)?;
                common.set(&values[0].unwrap_or_default().to_ascii_lowercase(), value);
            }
            Kind::If if self.condition != Condition::None => {
                return failed(host, format_args!("the \"if\" command inside the \"if\" command"));
            }
            Kind::If | Kind::Elif => {
                self.outputs = !self.chosen && is_true(values[0].unwrap_or_default(), &common, host)?;
                self.chosen |= self.outputs;
                self.condition = Condition::If;
            }
            Kind::Else => {
                self.outputs = !self.chosen;
                self.condition = Condition::Else;
            }
            Kind::Endif => (self.outputs, self.chosen, self.condition) = (true, false, Condition::None),
            Kind::Block => {
                common.begin_block(values[0].unwrap_or_default());
                (self.outputs, self.in_block) = (false, true);
            }
            Kind::Endblock => (self.outputs, self.in_block) = (true, false),
        }
        Ok(Effect::None)
    }

    fn echo(&mut self, values: &Values<'_>, host: &mut impl Host) -> Result<(), Failed> {
        let mut value = Vec::new();
        if !variable(values[0].unwrap_or_default(), &self.common, host, &mut value)? {
            value = values[1].unwrap_or(b"(none)").to_vec();
        }
        if value.is_empty() {
            return Ok(());
        }
        match values[2] {
            None => {}
            Some(b"none") => self.encoding = Encoding::None,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            Some(other) => {
                host.report(format_args!("unknown encoding \"{}\" in the \"echo\" command", Escaped(other)));
            }
        }
        self.encoding.write(&value, &mut self.text);
        Ok(())
    }
}

/// The command as it is written.
fn written(command: &Command) -> Vec<u8> {
    let mut text = [b"<!--#", &command.name[..]].concat();
    for (name, value) in &command.parameters {
        text.push(b' ');
        text.extend_from_slice(name);
        text.extend_from_slice(b"=\"");
        text.extend_from_slice(value);
        text.push(b'"');
    }
    text.extend_from_slice(b" -->");
    text
}

fn values<'a>(kind: Kind, command: &'a Command, host: &impl Host) -> Result<Values<'a>, Failed> {
    let name = Escaped(&command.name);
    if command.parameters.len() > MOST_PARAMETERS {
        return failed(host, format_args!("too many SSI command parameters: \"{name}\""));
    }
    let (known, needed) = kind.parameters();
    let mut values = Values::default();
    for (parameter, value) in &command.parameters {
        let Some(place) = known.iter().position(|known| known.as_bytes() == parameter) else {
            let parameter = Escaped(parameter);
            return failed(host, format_args!("invalid parameter name: \"{parameter}\" in \"{name}\" SSI command"));
        };
        if values[place].replace(value).is_some() {
            let parameter = Escaped(parameter);
            return failed(host, format_args!("duplicate \"{parameter}\" parameter in \"{name}\" SSI command"));
        }
    }
    match (0..needed).find(|place| values[*place].is_none()) {
        Some(place) => {
            let parameter = known[place];
            failed(host, format_args!("mandatory \"{parameter}\" parameter is absent in \"{name}\" SSI command"))
        }
        None => Ok(values),
    }
}

fn include(values: &Values<'_>, common: &Common, host: &mut impl Host) -> Result<Include, Failed> {
    let [uri, file, wait, set, stub] = *values;
    let text = match (uri, file) {
        (Some(uri), Some(file)) => {
            let (uri, file) = (Escaped(uri), Escaped(file));
            return failed(host, format_args!("inclusion may be either virtual=\"{uri}\" or file=\"{file}\""));
        }
        (None, None) => return failed(host, format_args!("no parameter in \"include\" SSI command")),
        (Some(text), None) | (None, Some(text)) => text,
    };
    if set.is_some() && stub.is_some() {
        let message = "\"set\" and \"stub\" cannot be used together in \"include\" SSI command";
        return failed(host, format_args!("{message}"));
    }
    let waits = match wait {
        None => uri.is_none(),
        Some(_) if uri.is_none() => {
            return failed(host, format_args!("\"wait\" cannot be used with file=\"{}\"", Escaped(text)));
        }
        Some(wait) if wait.eq_ignore_ascii_case(b"no") => false,
        Some(wait) if wait.eq_ignore_ascii_case(b"yes") => true,
        Some(wait) => {
            return failed(host, format_args!("invalid value \"{}\" in the \"wait\" parameter", Escaped(wait)));
        }
    };
    let (path, args) = target(text, common, host)?;
    let stub = match stub {
        None => None,
        Some(name) => match common.block(name) {
            None => {
                return failed(host, format_args!("\"stub\"=\"{}\" for \"include\" not found", Escaped(name)));
            }
            found => found,
        },
    };
    let variable = set.map(<[u8]>::to_ascii_lowercase);
    if let Some(name) = &variable {
        common.set(name, Vec::new());
    }
    Ok(Include { path, args, stub, waits: waits || variable.is_some(), variable })
}

/// Whether an expression is true: a text that is not empty, or a comparison with a text or a regular expression.
fn is_true(expression: &[u8], common: &Common, host: &mut impl Host) -> Result<bool, Failed> {
    let of_left = |byte: &u8| byte.is_ascii_alphanumeric() || b"${}_\"'".contains(byte);
    let length = expression.iter().take_while(|byte| of_left(byte)).count();
    let left = expression[..length].to_ascii_lowercase();
    let rest = without_blanks(&expression[length..]);
    let left = evaluate(&left, common, host)?;
    if rest.is_empty() {
        return Ok(!left.is_empty());
    }
    let (wanted, right) = match rest {
        [b'=', right @ ..] => (true, right),
        [b'!', b'=', right @ ..] => (false, right),
        _ => return invalid(expression, host),
    };
    let equal = match without_blanks(right) {
        [b'/', pattern @ .., b'/'] => matches(pattern, &left, common, host)?,
        [b'/', _, ..] => return invalid(expression, host),
        [b'\\', b'/', rest @ ..] => evaluate(&[b"/", rest].concat(), common, host)? == left,
        right => evaluate(right, common, host)? == left,
    };
    Ok(equal == wanted)
}

fn without_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| **byte == b' ').count()..]
}

fn invalid<T>(expression: &[u8], host: &impl Host) -> Result<T, Failed> {
    failed(host, format_args!("invalid expression in \"{}\"", Escaped(expression)))
}

/// Whether a regular expression matches. If it does, its groups are variables.
fn matches(pattern: &[u8], subject: &[u8], common: &Common, host: &mut impl Host) -> Result<bool, Failed> {
    let pattern = evaluate(pattern, common, host)?;
    let Ok(text) = std::str::from_utf8(&pattern) else {
        return failed(host, format_args!("\"{}\" is no regular expression", Escaped(&pattern)));
    };
    let regex = match Regex::new(text, false) {
        Ok(regex) => regex,
        Err((message, _)) => return failed(host, format_args!("{message} in \"{text}\"")),
    };
    let mut captures = Captures::default();
    match regex.find(subject, &mut captures) {
        Ok(false) => return Ok(false),
        Ok(true) => {}
        Err(error) => return failed(host, format_args!("{error}")),
    }
    for (group, name) in regex.group_names() {
        let value = captures.group(group).unwrap_or_default().to_vec();
        common.set(&name.as_bytes().to_ascii_lowercase(), value);
    }
    common.store.borrow_mut().captures = captures;
    Ok(true)
}
