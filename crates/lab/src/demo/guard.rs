//! What ends the balancer when the demo itself is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads until the demo is gone, then gives the terminal its settings back, unless the shell has, ends the balancer's
/// process group and removes its directory. A process in the background may set a terminal only if it ignores TTOU.
const SCRIPT: &str = "trap '' TTOU
cat >/dev/null
if [ -n \"$3\" ] && [ \"$(stty -g </dev/tty)\" = \"$4\" ]; then stty \"$3\" </dev/tty; fi
kill -TERM -\"$1\" 2>/dev/null && sleep 1
kill -KILL -\"$1\" 2>/dev/null
rm -rf \"$2\"";

/// A process that cleans up after a demo that could not. Dropping it, in a demo that can, ends it before it does anything.
pub(super) struct Guard(Child);

impl Guard {
    /// Guards the balancer whose process group is led by `leader` and whose files are in `directory`. `terminal` are the
    /// terminal's settings before the demo and during it, as `stty -g` writes them.
    ///
    /// # Errors
    /// There is no shell, or no process can be started.
    pub(super) fn start(leader: u32, directory: &Path, terminal: Option<&(String, String)>) -> io::Result<Self> {
        let (before, during) = terminal.cloned().unwrap_or_default();
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "balanza-demo-guard", &leader.to_string()])
            .arg(directory)
            .args([before, during])
            // Its end of the pipe is the only one but ours, which closes with this process, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
    }

    #[test]
    fn it_cleans_up_when_its_pipe_closes() {
        let (directory, mut balancer) = (tempfile::tempdir().unwrap(), sleeper());
        let mut guard = Guard::start(balancer.id(), directory.path(), None).unwrap();
        drop(guard.0.stdin.take());
        assert!(!balancer.wait().unwrap().success(), "it was killed");
        let start = Instant::now();
        while directory.path().exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the files are still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn it_does_nothing_when_it_is_dropped() {
        let (directory, mut balancer) = (tempfile::tempdir().unwrap(), sleeper());
        drop(Guard::start(balancer.id(), directory.path(), None).unwrap());
        assert!(balancer.try_wait().unwrap().is_none() && directory.path().exists());
        balancer.kill().unwrap();
        balancer.wait().unwrap();
    }
}
