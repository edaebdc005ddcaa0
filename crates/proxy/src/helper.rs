//! A user's program that keeps running and exchanges lines: started, restarted with growing pauses, ended.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};

/// The first pause before a program is started again.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause; a program that ran for so long is started again after the first one.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The longest line that is taken from a program.
const LINE_MAX: usize = 4096;

/// A running program. It is killed, with whatever is left of its process group, when this is dropped; when the whole
/// process goes without dropping anything, the program sees the end of its input.
pub struct Helper {
    child: Option<Child>,
    /// What it reads.
    pub input: Sender,
    /// What it writes.
    pub output: Lines,
}

impl Helper {
    /// Starts a program: its path and its arguments.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[impl AsRef<std::ffi::OsStr>]) -> io::Result<Helper> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What marks a worker process would make one of a program that starts this binary.
            .env_remove("BALANZA_WORKER")
            // Away from the terminal's signals: it ends when it is told to.
            .process_group(0)
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        let (input, output) = (OwnedFd::from(pipes.0), OwnedFd::from(pipes.1));
        Ok(Helper {
            child: Some(child),
            input: Sender::from_owned_fd(input)?,
            output: Lines { pipe: Receiver::from_owned_fd(output)?, bytes: Vec::new(), taken: 0 },
        })
    }

    /// Ends it, and says how it ended if that is known at once.
    pub fn end(mut self) -> String {
        // A program that closed its output may be about to exit by itself.
        std::thread::yield_now();
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        status.map_or_else(|| "its output ended".into(), |status| status.to_string())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        // Its end takes a moment, and the thread must not wait for it.
        if matches!(child.try_wait(), Ok(None)) {
            let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || child.wait());
        }
    }
}

/// Lines of a program's output.
pub struct Lines {
    pipe: Receiver,
    bytes: Vec<u8>,
    /// Bytes of the line that was returned last.
    taken: usize,
}

impl Lines {
    /// The next line without its end; `None` at the end of the output, or of a line that never ends. What was read of
    /// an unfinished line is kept when the caller stops waiting.
    pub async fn next(&mut self) -> Option<&[u8]> {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        let mut searched = 0;
        loop {
            if let Some(end) = self.bytes[searched..].iter().position(|byte| *byte == b'\n') {
                self.taken = searched + end + 1;
                return Some(self.bytes[..searched + end].trim_ascii_end());
            }
            searched = self.bytes.len();
            if searched > LINE_MAX || self.pipe.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// The pauses between a program's end and its next start.
pub struct Pauses {
    next: Duration,
    started: Instant,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { next: PAUSE_MIN, started: Instant::now() }
    }
}

impl Pauses {
    /// The program starts.
    pub fn start(&mut self) {
        self.started = Instant::now();
    }

    /// The program has ended, or could not start: how long to wait. Twice as long each time.
    pub fn pause(&mut self) -> Duration {
        if self.started.elapsed() >= PAUSE_MAX {
            self.next = PAUSE_MIN;
        }
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    fn is_running(id: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn lines_go_in_and_come_out() {
        run(async {
            let mut helper = Helper::start(&["cat"]).unwrap();
            helper.input.write_all(b"one\r\ntwo\nthr").await.unwrap();
            assert_eq!(helper.output.next().await, Some(&b"one"[..]));
            assert_eq!(helper.output.next().await, Some(&b"two"[..]));
            let waited = tokio::time::timeout(Duration::from_millis(20), helper.output.next()).await;
            assert!(waited.is_err(), "an unfinished line");
            helper.input.write_all(b"ee\n").await.unwrap();
            assert_eq!(helper.output.next().await, Some(&b"three"[..]));
        });
    }

    #[test]
    fn a_line_without_an_end_ends_the_output() {
        run(async {
            let mut helper = Helper::start(&["sh", "-c", "head -c 100000 /dev/zero; sleep 100"]).unwrap();
            assert_eq!(helper.output.next().await, None);
        });
    }

    #[test]
    fn it_is_killed_with_its_children() {
        run(async {
            let mut helper = Helper::start(&["sh", "-c", "sleep 1000 & echo $!; trap '' TERM; wait"]).unwrap();
            let line = String::from_utf8(helper.output.next().await.unwrap().to_vec()).unwrap();
            let shell = helper.child.as_ref().unwrap().id();
            let child = line.parse().unwrap();
            assert!(is_running(shell) && is_running(child));
            drop(helper);
            for _ in 0..3000 {
                if !is_running(shell) && !is_running(child) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("still running");
        });
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let waits: Vec<u128> = (0..11).map(|_| pauses.pause().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        pauses.started = Instant::now() - PAUSE_MAX;
        assert_eq!(pauses.pause(), PAUSE_MIN);
    }

    #[test]
    fn what_cannot_start_is_an_error() {
        run(async { assert!(Helper::start(&["/nonexistent/program"]).is_err()) });
    }
}
