//! A thread that looks at processes while a load lasts.

use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::usage::{PERIOD, Tree, Usage, of_one, stat};
use crate::record::{ProcessRecord, Role};

/// Who is whose child changes in the beginning, and seldom later, when it is read in each such look only.
const TREE_ALWAYS: u32 = 10;
const TREE_EVERY: u32 = 5;

/// So many samples are kept of each process.
const SAMPLES_MAX: usize = 120;

/// Looks at processes until it is finished.
pub struct Sampler {
    /// Name and new process id of one that was started again; closed at the end.
    again: Sender<(String, i32)>,
    thread: JoinHandle<Vec<ProcessRecord>>,
}

impl Sampler {
    /// Begins to look at these: name, role, process id. Descendants count to their process, unless they are watched by
    /// themselves. The lab's own id stands for what it starts (the tools that send load), without itself.
    pub fn start(watched: Vec<(String, Role, i32)>) -> Sampler {
        let (again, news) = channel::<(String, i32)>();
        let mut watch = Watch::new(watched);
        let thread = std::thread::spawn(move || {
            loop {
                match news.recv_timeout(PERIOD) {
                    Ok((name, pid)) => watch.again(&name, pid),
                    Err(RecvTimeoutError::Timeout) => watch.look(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            watch.looks = 0;
            watch.look();
            watch.seen.into_iter().map(Seen::record).collect()
        });
        Sampler { again, thread }
    }

    /// A process was started again: what the new one uses is added to what the one before has used.
    pub fn again(&self, name: &str, pid: i32) {
        // Nobody listens only if the thread has failed, which loses all figures anyway.
        let _ = self.again.send((name.to_owned(), pid));
    }

    /// The last look, and what each process has used since the first.
    pub fn finish(self) -> Vec<ProcessRecord> {
        drop(self.again);
        self.thread.join().unwrap_or_default()
    }
}

struct Watch {
    begin: Instant,
    looks: u32,
    seen: Vec<Seen>,
    pids: HashSet<i32>,
}

/// One watched process.
struct Seen {
    name: String,
    role: Role,
    pid: i32,
    own: bool,
    descendants: Vec<i32>,
    first: Usage,
    last: Usage,
    /// What processes of this name used that ended before.
    before: Usage,
    memory_max: u64,
    /// Seconds from the begin and processor time so far.
    samples: Vec<(f64, f64)>,
}

impl Watch {
    fn new(watched: Vec<(String, Role, i32)>) -> Watch {
        let own = std::process::id().cast_signed();
        let pids = watched.iter().map(|(_, _, pid)| *pid).collect();
        let tree = Tree::read();
        let seen = watched.into_iter().map(|(name, role, pid)| Seen {
            name,
            role,
            pid,
            own: pid == own,
            descendants: tree.descendants(pid, &pids),
            first: Usage::default(),
            last: Usage::default(),
            before: Usage::default(),
            memory_max: 0,
            samples: Vec::new(),
        });
        let mut seen: Vec<Seen> = seen.collect();
        let begin = Instant::now();
        for process in &mut seen {
            process.first = process.usage();
            process.last = process.first;
            process.memory_max = process.first.memory;
            process.samples.push((0.0, 0.0));
        }
        Watch { begin, looks: 1, seen, pids }
    }

    fn again(&mut self, name: &str, pid: i32) {
        self.pids.insert(pid);
        for process in self.seen.iter_mut().filter(|process| process.name == name) {
            process.again(pid);
        }
    }

    fn look(&mut self) {
        if self.looks < TREE_ALWAYS || self.looks.is_multiple_of(TREE_EVERY) {
            let tree = Tree::read();
            for process in &mut self.seen {
                process.descendants = tree.descendants(process.pid, &self.pids);
            }
        }
        self.looks += 1;
        for process in &mut self.seen {
            process.look(self.begin.elapsed().as_secs_f64());
        }
    }
}

impl Seen {
    fn usage(&self) -> Usage {
        let itself = if self.own { stat(self.pid).map(|stat| stat.children()) } else { of_one(self.pid) };
        let mut total = itself.unwrap_or_default();
        for &descendant in &self.descendants {
            total += of_one(descendant).unwrap_or_default();
        }
        total
    }

    fn look(&mut self, now: f64) {
        let usage = self.usage();
        self.memory_max = self.memory_max.max(usage.memory);
        // Time only grows. One that shrank is of a process that is being taken over by its parent, or of one that is gone.
        if usage.time() >= self.last.time() {
            self.last = usage;
        }
        self.samples.push((now, self.used().time()));
    }

    /// What all processes of this name have used since the first look.
    fn used(&self) -> Usage {
        let mut used = self.before;
        used.user += self.last.user - self.first.user;
        used.system += self.last.system - self.first.system;
        used
    }

    /// A new process takes its place; all that it has used counts.
    fn again(&mut self, pid: i32) {
        self.before = self.used();
        (self.pid, self.first, self.last) = (pid, Usage::default(), Usage::default());
        self.descendants.clear();
    }

    fn record(self) -> ProcessRecord {
        // How the time divides is known in ticks only, so that one part may seem to shrink.
        let used = self.used();
        let time = used.time();
        let user = used.user.clamp(0.0, time);
        ProcessRecord {
            name: self.name,
            role: self.role,
            user,
            system: time - user,
            memory_max: self.memory_max,
            samples: shares(&self.samples),
        }
    }
}

/// From times that grow to shares of a processor, over steps long enough that there are not too many.
fn shares(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = (samples.len().saturating_sub(1)).div_ceil(SAMPLES_MAX).max(1);
    let mut kept: Vec<(f64, f64)> = samples.iter().copied().step_by(step).collect();
    // The end is always kept, but a step too short for the kernel's ticks is joined to the one before it.
    if let Some(&last) = samples.last()
        && kept.last() != Some(&last)
    {
        kept.push(last);
    }
    if let [.., before, last] = kept[..]
        && kept.len() > 2
        && last.0 - before.0 < PERIOD.as_secs_f64() / 2.0
    {
        kept.remove(kept.len() - 2);
    }
    let share = |pair: &[(f64, f64)]| {
        let [(from, before), (to, after)] = *pair else { return None };
        (to > from).then(|| (round(to), round((after - before) / (to - from))))
    };
    kept.windows(2).filter_map(share).collect()
}

/// Three places: the kernel does not count finer.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::process::Process;

    fn spawn(directory: &std::path::Path, script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn("shell", Role::Server, command, &directory.join("log")).unwrap()
    }

    fn until(condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(30), "not in time");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_busy_child_is_told_from_an_idle_one() {
        let directory = tempfile::tempdir().unwrap();
        // The work is done by grandchildren: one that stays, one that ends.
        let busy =
            spawn(directory.path(), "(i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done); while :; do :; done & wait");
        let idle = spawn(directory.path(), "sleep 600");
        let watched = [("busy", Role::Balancer, busy.pid()), ("idle", Role::Server, idle.pid())]
            .map(|(n, r, p)| (n.to_owned(), r, p));
        let sampler = Sampler::start(watched.to_vec());
        let before = crate::process::usage(busy.pid()).unwrap().time();
        until(|| crate::process::usage(busy.pid()).unwrap().time() > before + 0.5);
        let records = sampler.finish();
        let [busy, idle] = &records[..] else { panic!("{records:?}") };
        assert_eq!((busy.name.as_str(), busy.role), ("busy", Role::Balancer));
        assert!(busy.user + busy.system >= 0.4, "{busy:?}");
        assert!(busy.memory_max > 100_000, "{busy:?}");
        assert!(!busy.samples.is_empty(), "{busy:?}");
        assert!(idle.user + idle.system < 0.2, "{idle:?}");
    }

    #[test]
    fn one_that_is_gone_keeps_what_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let process = spawn(directory.path(), "while :; do :; done");
        let pid = process.pid();
        let mut watch = Watch::new(vec![("gone".into(), Role::Server, pid)]);
        let before = crate::process::usage(pid).unwrap().time();
        until(|| crate::process::usage(pid).unwrap().time() > before + 0.3);
        watch.look();
        drop(process);
        watch.look();
        let record = watch.seen.remove(0).record();
        assert!(record.user + record.system > 0.2, "{record:?}");
    }

    #[test]
    fn one_that_is_started_again_adds_to_what_it_had() {
        let directory = tempfile::tempdir().unwrap();
        let busy = || spawn(directory.path(), "while :; do :; done");
        let used_more_than = |process: &Process, time: f64| {
            let pid = process.pid();
            until(|| crate::process::usage(pid).is_some_and(|usage| usage.time() > time));
        };
        let first = busy();
        let mut watch = Watch::new(vec![("busy".into(), Role::Server, first.pid())]);
        let before = crate::process::usage(first.pid()).unwrap().time();
        used_more_than(&first, before + 0.3);
        watch.look();
        drop(first);
        let second = busy();
        watch.again("busy", second.pid());
        used_more_than(&second, 0.3);
        watch.look();
        let record = watch.seen.remove(0).record();
        assert!(record.user + record.system > 0.5, "{record:?}");
    }

    #[test]
    fn shares_are_of_one_processor_and_not_too_many() {
        assert_eq!(shares(&[(0.0, 0.0), (0.2, 0.1), (0.4, 0.3)]), [(0.2, 0.5), (0.4, 1.0)]);
        assert!(shares(&[(0.0, 0.0)]).is_empty());
        // The last look comes whenever the load ends.
        assert_eq!(shares(&[(0.0, 0.0), (0.2, 0.1), (0.21, 0.105)]), [(0.21, 0.5)]);
        let long: Vec<(f64, f64)> = (0..1000).map(|n| (f64::from(n) * 0.2, f64::from(n) * 0.1)).collect();
        let thinned = shares(&long);
        assert!(thinned.len() <= SAMPLES_MAX + 1, "{}", thinned.len());
        assert!(thinned.iter().all(|&(_, share)| (share - 0.5).abs() < 1e-9));
    }
}
