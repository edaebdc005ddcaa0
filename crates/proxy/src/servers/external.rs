//! `balance external`: a user's program chooses. Each worker runs one and keeps it running.
//!
//! For each choice it gets a line and answers with a line, in any order:
//!
//! ```text
//! pick ID KEY SERVER SERVER …      SERVER = INDEX:WEIGHT:IN_FLIGHT:NAME
//! ID INDEX
//! ```
//!
//! ID is a number that is new each time; KEY the request's key with everything but letters, digits and `-._~:/` as `%XX`,
//! or `-` for none; the servers are those that may be chosen. INDEX counts from 0 in the order of the configuration,
//! WEIGHT is what the server may take now. `ID -` leaves the choice to least_conn, and so does an answer that is late,
//! wrong or missing. A program that ends is started again after 100 ms, then after twice as long each time, up to 30 s.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use balanza_balancing::{Driver, Member, Tried, external, registry};
use balanza_config::model::{self, Level};
use balanza_net::alarm::Alarm;
use balanza_net::clock::{self, Nanos};
use balanza_net::shortage::describe;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::affinity::is_current;
use crate::essential;
use crate::helper::{Helper, Pauses};
use crate::log::error::ErrorWriter;

/// How much may wait for a program that does not read.
const UNREAD_MAX: usize = 256 << 10;

/// How often in a row answers may be late before that is written to the log again.
const LATE_EACH: u64 = 10_000;

/// A worker's program of one upstream.
pub struct External {
    shared: Rc<Shared>,
    task: AbortHandle,
}

impl Drop for External {
    fn drop(&mut self) {
        self.end();
    }
}

struct Shared {
    upstream: String,
    log: ErrorWriter,
    limit: Nanos,
    /// The program reads and answers.
    running: Cell<bool>,
    next_id: Cell<u64>,
    late: Cell<u64>,
    /// Lines that the program is to get.
    unread: RefCell<Vec<u8>>,
    /// There is something in `unread`, or a first question in `asked`.
    wake: Notify,
    /// Questions without an answer, in the order of their deadlines and of their ids, which follow each other.
    asked: RefCell<VecDeque<Question>>,
}

struct Question {
    id: u64,
    deadline: Nanos,
    /// Taken when the answer has come.
    answer: Option<oneshot::Sender<Option<u32>>>,
}

impl External {
    /// The program of an upstream that has one.
    pub fn of(upstream: &model::Upstream, log: &ErrorWriter) -> Option<External> {
        let spec = &upstream.balance.spec;
        let chooses = spec.entry().host == registry::Host::Program;
        chooses.then(|| External::start(&upstream.name, spec.text("program"), spec.time("timeout"), log.clone()))
    }

    /// Starts a program: its path and its arguments. `limit` is how long an answer may take.
    fn start(upstream: &str, command: &str, limit: Nanos, log: ErrorWriter) -> External {
        let shared = Rc::new(Shared {
            upstream: upstream.to_owned(),
            log,
            limit,
            running: Cell::new(false),
            next_id: Cell::new(0),
            late: Cell::new(0),
            unread: RefCell::default(),
            wake: Notify::new(),
            asked: RefCell::default(),
        });
        let words = command.split_ascii_whitespace().map(str::to_owned).collect();
        let task = essential::task("the link to a program that chooses", run(words, Rc::clone(&shared)));
        let task = tokio::task::spawn_local(task).abort_handle();
        External { shared, task }
    }

    /// Ends the program; it is not asked any more.
    pub fn end(&self) {
        self.task.abort();
        self.shared.give_up();
    }

    /// The program's choice, or `None` when it has none in time.
    pub async fn choose(&self, driver: &RefCell<Driver>, now: Nanos, key: &[u8], tried: &Tried) -> Option<Member> {
        let answer = self.shared.ask(&driver.borrow(), now, key, tried)?;
        let member = answer.await.ok()?.map(Member)?;
        let driver = driver.borrow();
        // It may only name servers of the question; the claim checks that the server is still open.
        ((member.0 as usize) < driver.fleet().len() && is_current(&driver, member, now, tried)).then_some(member)
    }
}

impl Shared {
    fn ask(&self, driver: &Driver, now: Nanos, key: &[u8], tried: &Tried) -> Option<oneshot::Receiver<Option<u32>>> {
        let mut unread = self.unread.borrow_mut();
        if !self.running.get() || unread.len() > UNREAD_MAX {
            return None;
        }
        let id = self.next_id.get();
        if !external::write_question(id, key, driver, now, tried, &mut unread) {
            return None;
        }
        self.next_id.set(id + 1);
        let (sender, answer) = oneshot::channel();
        let deadline = clock::now().saturating_add(self.limit);
        self.asked.borrow_mut().push_back(Question { id, deadline, answer: Some(sender) });
        self.wake.notify_one();
        Some(answer)
    }

    /// A line of the program; false if it is no answer.
    fn answer(&self, line: &[u8]) -> bool {
        let Some((id, index)) = external::read_answer(line).filter(|(id, _)| *id < self.next_id.get()) else {
            return false;
        };
        let mut asked = self.asked.borrow_mut();
        let first = asked.front().map_or(id + 1, |question| question.id);
        // Those before the first are late.
        if let Some(place) = id.checked_sub(first)
            && let Some(question) = asked.get_mut(place as usize)
            && let Some(sender) = question.answer.take()
        {
            let _ = sender.send(index);
            self.late.set(0);
        }
        while asked.front().is_some_and(|question| question.answer.is_none()) {
            asked.pop_front();
        }
        true
    }

    /// Gives up on what is late; returns when the next question will be.
    fn expire(&self, now: Nanos) -> Option<Nanos> {
        let mut asked = self.asked.borrow_mut();
        while let Some(first) = asked.front() {
            if first.answer.is_some() && first.deadline > now {
                return Some(first.deadline);
            }
            if first.answer.is_some() {
                let late = self.late.get();
                self.late.set(late + 1);
                if late.is_multiple_of(LATE_EACH) {
                    self.note(Level::Warn, format_args!("does not answer in time, least_conn chooses"));
                }
            }
            // Dropping the sender ends the wait.
            asked.pop_front();
        }
        None
    }

    fn give_up(&self) {
        self.running.set(false);
        self.unread.borrow_mut().clear();
        self.asked.borrow_mut().clear();
    }

    fn note(&self, level: Level, message: std::fmt::Arguments<'_>) {
        self.log.write(level, format_args!("external program of upstream \"{}\" {message}", self.upstream));
    }
}

/// Runs the program, again and again.
async fn run(words: Vec<String>, shared: Rc<Shared>) {
    let mut pauses = Pauses::default();
    loop {
        pauses.start();
        let ended = match Helper::start(&words) {
            Ok(helper) => {
                shared.running.set(true);
                let ended = talk(helper, &shared).await;
                shared.give_up();
                ended
            }
            Err(error) => format!("cannot be started {}", describe(&error)),
        };
        let pause = pauses.pause();
        shared.note(Level::Error, format_args!("{ended}, restarting in {pause:?}"));
        tokio::time::sleep(pause).await;
    }
}

/// Passes questions and answers until the program ends or stops making sense; says why.
async fn talk(mut helper: Helper, shared: &Shared) -> String {
    let timer = match Alarm::new() {
        Ok(timer) => timer,
        Err(error) => return format!("cannot have a timer {}", describe(&error)),
    };
    let mut writing: Vec<u8> = Vec::new();
    let mut written = 0;
    loop {
        if written == writing.len() {
            writing.clear();
            written = 0;
            std::mem::swap(&mut writing, &mut shared.unread.borrow_mut());
        }
        if let Some(deadline) = shared.expire(clock::now()) {
            timer.set(deadline);
        }
        tokio::select! {
            line = helper.output.next() => match line {
                Some(line) if shared.answer(line) => {}
                Some(line) => return format!("sent \"{}\", which is not a valid answer", line.escape_ascii()),
                None => return format!("ended ({})", helper.end()),
            },
            result = helper.input.write(&writing[written..]), if written < writing.len() => match result {
                Ok(count) => written += count,
                Err(error) => return format!("does not read its input {}", describe(&error)),
            },
            () = shared.wake.notified() => {}
            () = timer.rings() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use balanza_balancing::{Fleet, Report, ServerSpec, ServerState, Start, registry};

    use super::*;
    use crate::log::LogFiles;

    fn driver(servers: usize) -> RefCell<Driver> {
        let spec = registry::Spec::new(registry::find("external").unwrap(), &[("program", "cat")]).unwrap();
        let servers = (0..servers).map(|n| (ServerSpec::new(&format!("s{n}:80")), Arc::new(ServerState::new())));
        let fleet = Arc::new(Fleet::new(&spec, servers.collect()).unwrap());
        RefCell::new(Driver::new(fleet, 1, Start::default()))
    }

    fn start(command: &str, limit: Duration) -> External {
        External::start("test", command, clock::nanos(limit), ErrorWriter::new(&[], &LogFiles::default()))
    }

    /// A shell script that runs `answer` for each question, with its id in `$id` and its key in `$key`.
    fn script(answer: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("while read -r pick id key servers; do\n{answer}\ndone\n")).unwrap();
        let command = format!("sh {}", file.path().display());
        (file, command)
    }

    fn run_local<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(test)
    }

    async fn started(external: &External) {
        while !external.shared.running.get() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn ask(external: &External, driver: &RefCell<Driver>, key: &[u8]) -> Option<u32> {
        external.choose(driver, clock::now(), key, &Tried::default()).await.map(|Member(index)| index)
    }

    #[test]
    fn a_program_chooses() {
        run_local(async {
            let driver = driver(3);
            // The key is written as "-", "a", "ab", "abc", "a%20b".
            let (_file, command) = script("echo $id $((${#key} % 3))");
            let external = start(&command, Duration::from_secs(60));
            started(&external).await;
            for (key, server) in [(&b""[..], 1), (b"a", 1), (b"ab", 2), (b"abc", 0), (b"a b", 2)] {
                assert_eq!(ask(&external, &driver, key).await, Some(server));
            }
        });
    }

    #[test]
    fn it_is_told_who_may_be_chosen() {
        run_local(async {
            let driver = driver(3);
            let (mut tried, now) = (Tried::default(), clock::now());
            let first = driver.borrow_mut().pick(now, b"", &mut tried).unwrap();
            let external = start("cat", Duration::from_secs(60));
            started(&external).await;
            let answer = external.shared.ask(&driver.borrow(), now, b"k\n", &Tried::default());
            assert!(answer.is_some());
            let line = String::from_utf8(external.shared.unread.borrow().clone()).unwrap();
            assert_eq!(line, "pick 0 k%0A 0:1.0000:1:s0:80 1:1.0000:0:s1:80 2:1.0000:0:s2:80\n");
            assert!(external.shared.ask(&driver.borrow(), now, b"", &tried).is_some());
            let line = String::from_utf8(external.shared.unread.borrow().clone()).unwrap();
            assert!(line.ends_with("\npick 1 - 1:1.0000:0:s1:80 2:1.0000:0:s2:80\n"), "{line}");
            driver.borrow_mut().complete(now, first, &Report::default());
        });
    }

    #[test]
    fn a_late_answer_is_not_waited_for_and_not_taken_for_another() {
        run_local(async {
            let driver = driver(2);
            let limit = Duration::from_micros(500);
            let (_file, command) = script("sleep 60; echo $id 1");
            let external = start(&command, limit);
            started(&external).await;
            let begun = std::time::Instant::now();
            assert_eq!(ask(&external, &driver, b"").await, None);
            let waited = begun.elapsed();
            assert!(waited >= limit && waited < Duration::from_secs(30), "{waited:?}");
            assert_eq!(external.shared.late.get(), 1);
            // What comes later is the answer to nothing.
            assert!(external.shared.answer(b"0 1"));
            assert!(
                !external.shared.answer(b"7 1") && !external.shared.answer(b"0") && !external.shared.answer(b"0 x")
            );
        });
    }

    #[test]
    fn answers_come_in_any_order() {
        run_local(async {
            let driver = driver(2);
            let external = start("cat", Duration::from_secs(60));
            started(&external).await;
            let ask = || external.shared.ask(&driver.borrow(), clock::now(), b"", &Tried::default()).unwrap();
            let (first, second, third) = (ask(), ask(), ask());
            assert!(external.shared.answer(b"1 1") && external.shared.answer(b"2 -") && external.shared.answer(b"0 0"));
            assert_eq!((first.await, second.await, third.await), (Ok(Some(0)), Ok(Some(1)), Ok(None)));
            assert!(external.shared.asked.borrow().is_empty());
        });
    }

    #[test]
    fn nobody_waits_for_a_dead_program() {
        run_local(async {
            let driver = driver(2);
            let external = start("head -n 1 /dev/null", Duration::from_secs(60));
            assert_eq!(ask(&external, &driver, b"").await, None);
            let external = start("cat", Duration::from_secs(60));
            started(&external).await;
            // It echoes the question, which is no answer: it is not asked any more, and no request waits.
            assert_eq!(ask(&external, &driver, b"").await, None);
            assert!(!external.shared.running.get());
        });
    }
}
