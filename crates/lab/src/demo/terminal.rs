//! The terminal: its size, and keys as they are pressed.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::keys::{Key, parse};

/// The size of a terminal that does not tell.
const SIZE: (usize, usize) = (80, 24);

/// Columns and lines.
pub(super) fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or(SIZE, |(width, height)| (width.0.into(), height.0.into()))
}

/// Whether to colour what is drawn there.
pub(super) fn has_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A terminal that hands keys over one by one and does not show them. Dropping it gives it its settings back.
pub(super) struct Keyboard {
    pressed: UnboundedReceiver<Vec<Key>>,
    before: Termios,
    /// The settings before and now, as `stty` reads them.
    stty: Option<(String, String)>,
}

impl Keyboard {
    /// The terminal at standard input, if that is one and this process is in its foreground.
    pub(super) fn open() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        // Setting it from the background would stop this process.
        if nix::unistd::tcgetpgrp(stdin.as_fd()).ok()? != nix::unistd::getpgrp() {
            return None;
        }
        let stty_before = stty();
        let before = termios::tcgetattr(stdin.as_fd()).ok()?;
        let mut now = before.clone();
        now.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        now.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        now.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        // A demo in the background could neither draw nor give the terminal its settings back.
        now.control_chars[SpecialCharacterIndices::VSUSP as usize] = 0;
        termios::tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &now).ok()?;
        let (sender, pressed) = unbounded_channel();
        let keyboard = Self { pressed, before, stty: stty_before.zip(stty()) };
        // It ends with the process: a read from a terminal cannot be interrupted.
        let reader = move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                if sender.send(parse(&bytes[..count])).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("keys".into()).spawn(reader).ok()?;
        Some(keyboard)
    }

    /// The settings that it had and has, for `stty`.
    pub(super) fn stty(&self) -> Option<&(String, String)> {
        self.stty.as_ref()
    }

    /// The next keys; none at all when the terminal is gone.
    pub(super) async fn keys(&mut self) -> Option<Vec<Key>> {
        self.pressed.recv().await
    }
}

/// The settings of the terminal at standard input, as `stty` reads them.
fn stty() -> Option<String> {
    let done = std::process::Command::new("stty").arg("-g").stdin(std::process::Stdio::inherit()).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &self.before);
    }
}
