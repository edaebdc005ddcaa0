//! The program of `balance external`, asked in the middle of virtual time: it answers at once, however long it takes.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use balanza_balancing::registry::{Host, Spec};
use balanza_balancing::{Driver, Member, Nanos, Tried};

use crate::error::Error;

/// A program that stays running for one dispatcher, with the proxy's protocol of a line for a question and one for the
/// answer.
pub(crate) struct Helper {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    text: String,
    asked: u64,
}

impl Helper {
    /// Starts the program of an algorithm, if it has one.
    pub fn of(spec: &Spec) -> Result<Option<Helper>, Error> {
        if spec.entry().host != Host::Program {
            return Ok(None);
        }
        let program = spec.text("program");
        Helper::start(program).map(Some).map_err(|error| Error::Program { program: program.into(), error })
    }

    /// Starts a program: its path and its arguments, with spaces between.
    fn start(command: &str) -> io::Result<Helper> {
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (questions, answers) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        Ok(Helper { child, questions, answers: BufReader::new(answers), text: String::new(), asked: 0 })
    }

    /// Takes a slot of the server that the program chooses, or of the one that least_conn does when it leaves that open.
    ///
    /// # Errors
    /// It ended, or its answer is none.
    pub fn pick(
        &mut self,
        driver: &mut Driver,
        now: Nanos,
        key: &[u8],
        tried: &mut Tried,
    ) -> io::Result<Option<Member>> {
        match self.choose(driver, now, key, tried)? {
            Some(member) if driver.claim(now, member, tried, false).is_ok() => Ok(Some(member)),
            _ => Ok(driver.pick(now, key, tried).ok()),
        }
    }

    /// The program's choice; `None` when it leaves it to least_conn, or nobody can be chosen.
    fn choose(&mut self, driver: &Driver, now: Nanos, key: &[u8], tried: &Tried) -> io::Result<Option<Member>> {
        let id = self.asked;
        self.asked += 1;
        self.text.clear();
        let _ = write!(self.text, "pick {id} ");
        if key.is_empty() {
            self.text.push('-');
        }
        for byte in key {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                    self.text.push(char::from(*byte));
                }
                _ => {
                    let _ = write!(self.text, "%{byte:02X}");
                }
            }
        }
        let mut any = false;
        for candidate in driver.candidates(now, tried) {
            any = true;
            let name = &driver.fleet().server(candidate.member).name;
            let weight = candidate.weight as f64 / 256.0;
            let _ = write!(self.text, " {}:{weight:.4}:{}:{name}", candidate.member.0, candidate.in_flight);
        }
        if !any {
            return Ok(None);
        }
        self.text.push('\n');
        self.questions.write_all(self.text.as_bytes())?;
        self.text.clear();
        if self.answers.read_line(&mut self.text)? == 0 {
            return Err(io::Error::other("it ended"));
        }
        let wrong = || io::Error::other(format!("\"{}\" is no answer to question {id}", self.text.trim_end()));
        let (number, choice) = self.text.trim_end().split_once(' ').ok_or_else(wrong)?;
        if number.parse() != Ok(id) {
            return Err(wrong());
        }
        if choice == "-" {
            return Ok(None);
        }
        let index: u32 = choice.parse().map_err(|_| wrong())?;
        if index as usize >= driver.fleet().len() {
            return Err(wrong());
        }
        Ok(Some(Member(index)))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
