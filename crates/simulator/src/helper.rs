//! The program of `balance external`, asked in the middle of virtual time: it answers at once, however long it takes.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use balanza_balancing::registry::{Host, Spec};
use balanza_balancing::{Driver, Member, Nanos, Tried, external};

use crate::error::Error;

/// A program that stays running for one dispatcher, with the proxy's protocol of a line for a question and one for the
/// answer.
pub(crate) struct Helper {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    line: Vec<u8>,
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
        Ok(Helper { child, questions, answers: BufReader::new(answers), line: Vec::new(), asked: 0 })
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
        self.line.clear();
        if !external::write_question(id, key, driver, now, tried, &mut self.line) {
            return Ok(None);
        }
        self.questions.write_all(&self.line)?;
        self.line.clear();
        if self.answers.read_until(b'\n', &mut self.line)? == 0 {
            return Err(io::Error::other("it ended"));
        }
        let line = self.line.trim_ascii_end();
        let wrong = || io::Error::other(format!("\"{}\" is no answer to question {id}", line.escape_ascii()));
        let (_, index) = external::read_answer(line).filter(|(number, _)| *number == id).ok_or_else(wrong)?;
        let Some(index) = index else { return Ok(None) };
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
