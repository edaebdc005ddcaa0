//! What the user types.

use super::server::Condition;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Left,
    Right,
    Up,
    Down,
}

/// What the demo is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Balance by this algorithm.
    Algorithm(String),
    /// Take the algorithm so many places further in the list.
    Other(isize),
    /// Something happens to the chosen server.
    Server(usize, Condition),
    /// More load, or less.
    Load(Change),
    /// A second farm, or one again.
    Versus,
    Quit,
}

/// How the load changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    More,
    Less,
}

/// What is chosen and what is being typed.
#[derive(Debug, Default)]
pub(super) struct Controls {
    /// Index of the server that keys are about.
    pub(super) server: usize,
    /// Index of the farm whose algorithm keys are about.
    pub(super) farm: usize,
    /// The name of an algorithm that is being typed.
    pub(super) prompt: Option<String>,
}

/// Splits what a terminal sent into keys; what is none of them is left out.
pub(super) fn parse(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let (mut keys, mut rest) = (Vec::new(), &*text);
    while let Some(first) = rest.chars().next() {
        let arrows = [("A", Key::Up), ("B", Key::Down), ("C", Key::Right), ("D", Key::Left)];
        let sequence = rest.strip_prefix("\x1b[").or_else(|| rest.strip_prefix("\x1bO"));
        if let Some(sequence) = sequence {
            let end = sequence.find(|c: char| c.is_ascii_alphabetic() || c == '~').map_or(sequence.len(), |at| at + 1);
            keys.extend(arrows.iter().find(|(code, _)| *code == &sequence[..end]).map(|(_, key)| *key));
            rest = &sequence[end..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '\r' | '\n' => keys.push(Key::Enter),
            '\x1b' => keys.push(Key::Escape),
            '\x7f' | '\x08' => keys.push(Key::Backspace),
            '\t' => keys.push(Key::Tab),
            c if !c.is_control() => keys.push(Key::Char(c)),
            _ => {}
        }
    }
    keys
}

impl Controls {
    /// What a key means now, with so many servers and farms.
    pub(super) fn press(&mut self, key: Key, servers: usize, farms: usize) -> Option<Command> {
        if self.prompt.is_some() {
            return self.edit(key);
        }
        let happens = |controls: &Self, condition| Some(Command::Server(controls.server, condition));
        match key {
            Key::Char('q') => return Some(Command::Quit),
            Key::Char('a') => self.prompt = Some(String::new()),
            Key::Char('v') => return Some(Command::Versus),
            Key::Char('+' | '=') => return Some(Command::Load(Change::More)),
            Key::Char('-' | '_') => return Some(Command::Load(Change::Less)),
            Key::Char('s') => return happens(self, Condition::Slow),
            Key::Char('t') => return happens(self, Condition::Stopped),
            Key::Char('k') => return happens(self, Condition::Killed),
            Key::Char('r') => return happens(self, Condition::Well),
            Key::Char(digit @ '1'..='9') if (digit as usize - '1' as usize) < servers => {
                self.server = digit as usize - '1' as usize;
            }
            Key::Up => self.server = (self.server + servers - 1) % servers,
            Key::Down => self.server = (self.server + 1) % servers,
            Key::Left => return Some(Command::Other(-1)),
            Key::Right => return Some(Command::Other(1)),
            Key::Tab => self.farm = (self.farm + 1) % farms,
            _ => {}
        }
        None
    }

    fn edit(&mut self, key: Key) -> Option<Command> {
        let prompt = self.prompt.as_mut()?;
        match key {
            Key::Char(c) => prompt.push(c),
            Key::Backspace => _ = prompt.pop(),
            Key::Escape => self.prompt = None,
            Key::Enter => return self.prompt.take().filter(|name| !name.trim().is_empty()).map(Command::Algorithm),
            Key::Tab | Key::Left | Key::Right | Key::Up | Key::Down => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_send() {
        assert_eq!(parse(b"s\x1b[Bq"), [Key::Char('s'), Key::Down, Key::Char('q')]);
        assert_eq!(parse(b"\x1bOC\x1b[D\r\x7f\t"), [Key::Right, Key::Left, Key::Enter, Key::Backspace, Key::Tab]);
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b[5~\x1b[1;5Ax\x01"), [Key::Char('x')], "page up, Ctrl-up and Ctrl-a mean nothing");
        assert_eq!(parse("ü\x1b[".as_bytes()), [Key::Char('ü')]);
    }

    #[test]
    fn keys_are_commands() {
        let mut controls = Controls::default();
        let mut press = |key| controls.press(key, 3, 2);
        assert_eq!(press(Key::Char('q')), Some(Command::Quit));
        assert_eq!(press(Key::Char('3')), None);
        assert_eq!(press(Key::Char('k')), Some(Command::Server(2, Condition::Killed)));
        press(Key::Down);
        press(Key::Char('9'));
        assert_eq!(press(Key::Char('t')), Some(Command::Server(0, Condition::Stopped)), "there is no ninth");
        press(Key::Up);
        assert_eq!(press(Key::Char('r')), Some(Command::Server(2, Condition::Well)));
        assert_eq!(press(Key::Char('+')), Some(Command::Load(Change::More)));
        assert_eq!(press(Key::Left), Some(Command::Other(-1)));
        press(Key::Tab);
        assert_eq!(controls.farm, 1);
    }

    #[test]
    fn a_name_is_typed() {
        let mut controls = Controls::default();
        let mut typed =
            |text: &str| parse(text.as_bytes()).into_iter().filter_map(|key| controls.press(key, 3, 1)).last();
        assert_eq!(typed("aqx\x7f\x7frandom two\r"), Some(Command::Algorithm("random two".into())));
        assert_eq!(typed("aleast\x1b"), None);
        assert_eq!(typed("a \r"), None);
        assert_eq!(typed("q"), Some(Command::Quit), "the prompt is closed");
    }
}
