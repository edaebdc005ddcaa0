//! What processes use, from /proc. The kernel counts processor time there in ticks of 10 ms; the clock of a process says
//! the whole exactly, and the ticks only how it divides.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// What a process and all its descendants use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time in user mode, in seconds, of children that ended as well.
    pub user: f64,
    /// The same in the kernel.
    pub system: f64,
    /// Resident memory in bytes.
    pub memory: u64,
}

impl Usage {
    /// Both times together, in seconds.
    pub fn time(&self) -> f64 {
        self.user + self.system
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user += other.user;
        self.system += other.system;
        self.memory += other.memory;
    }
}

/// What the process and its descendants have used since they began; none if there is no such process.
pub fn usage(pid: i32) -> Option<Usage> {
    let tree = Tree::read();
    let mut total = of_one(pid)?;
    for descendant in tree.descendants(pid, &HashSet::new()) {
        total += of_one(descendant).unwrap_or_default();
    }
    Some(total)
}

/// What the process itself and its children that have ended have used.
pub fn of_one(pid: i32) -> Option<Usage> {
    let stat = stat(pid)?;
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).and_then(clock_gettime);
    Some(stat.usage(clock.ok().map(|time| Duration::from(time).as_secs_f64())))
}

/// The processes that descend from this one.
pub fn descendants(pid: i32) -> Vec<i32> {
    Tree::read().descendants(pid, &HashSet::new())
}

/// One line of /proc/PID/stat, as far as it is of interest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat {
    parent: i32,
    /// User mode, kernel; then the same of children that were waited for. In ticks.
    ticks: [u64; 4],
    pages: u64,
}

impl Stat {
    /// Of the process itself, whose clock says so much, and of its children that have ended.
    fn usage(&self, clock: Option<f64>) -> Usage {
        let [user, system] = [self.ticks[0], self.ticks[1]].map(seconds);
        let exact = clock.unwrap_or(user + system);
        let part = if user + system > 0.0 { user / (user + system) } else { 0.5 };
        let children = self.children();
        Usage {
            user: exact * part + children.user,
            system: exact * (1.0 - part) + children.system,
            memory: self.memory(),
        }
    }

    /// Of its children that have ended, alone.
    pub(super) fn children(&self) -> Usage {
        Usage { user: seconds(self.ticks[2]), system: seconds(self.ticks[3]), memory: 0 }
    }

    fn memory(&self) -> u64 {
        static PAGE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let page = *PAGE.get_or_init(|| sysconf(nix::unistd::SysconfVar::PAGE_SIZE, 4096));
        self.pages * page
    }
}

fn seconds(ticks: u64) -> f64 {
    static TICK: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let per_second = *TICK.get_or_init(|| sysconf(nix::unistd::SysconfVar::CLK_TCK, 100));
    ticks as f64 / per_second as f64
}

fn sysconf(variable: nix::unistd::SysconfVar, usual: u64) -> u64 {
    let value = nix::unistd::sysconf(variable).ok().flatten();
    value.and_then(|value| u64::try_from(value).ok()).filter(|&value| value > 0).unwrap_or(usual)
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name, in parentheses, may hold anything, parentheses too.
fn parse(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line[line.rfind(')')? + 1..].split_ascii_whitespace().collect();
    // The first field after the name is number 3 in proc(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: [number(14)?, number(15)?, number(16)?, number(17)?],
        pages: number(24)?,
    })
}

/// Who is whose child.
pub(super) struct Tree(HashMap<i32, Vec<i32>>);

impl Tree {
    pub(super) fn read() -> Tree {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, stat(pid)?))) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        Tree(children)
    }

    /// Children, their children and so on, without those of `others` and what descends from them.
    pub(super) fn descendants(&self, pid: i32, others: &HashSet<i32>) -> Vec<i32> {
        let mut found: Vec<i32> = Vec::new();
        let mut next = vec![pid];
        while let Some(parent) = next.pop() {
            let children = self.0.get(&parent).into_iter().flatten().copied();
            for child in children.filter(|child| !others.contains(child)) {
                found.push(child);
                next.push(child);
            }
        }
        found
    }
}

/// How often a process is looked at.
pub(super) const PERIOD: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel() {
        let line =
            "812 (a (strange) name) S 7 812 812 0 -1 4194304 100 0 0 0 150 50 30 20 20 0 3 0 999 1000000 250 18446744";
        let stat = parse(line).unwrap();
        assert_eq!(stat, Stat { parent: 7, ticks: [150, 50, 30, 20], pages: 250 });
        let usage = stat.usage(Some(2.1));
        assert!((usage.user - (2.1 * 0.75 + 0.3)).abs() < 1e-9 && (usage.system - (2.1 * 0.25 + 0.2)).abs() < 1e-9);
        assert!((stat.usage(None).time() - 2.5).abs() < 1e-9);
        assert_eq!(parse("812 (cut off"), None);
        assert_eq!(parse("812 (cut off) S 7 8"), None);
    }

    #[test]
    fn descendants_stop_where_others_begin() {
        let tree = Tree(HashMap::from([(1, vec![2, 3]), (2, vec![4]), (3, vec![5]), (5, vec![6])]));
        let mut found = tree.descendants(1, &HashSet::from([3]));
        found.sort_unstable();
        assert_eq!(found, [2, 4]);
        assert_eq!(tree.descendants(1, &HashSet::new()).len(), 5);
        assert!(tree.descendants(6, &HashSet::new()).is_empty());
    }

    #[test]
    fn this_process_uses_something() {
        assert!(usage(std::process::id().cast_signed()).unwrap().memory > 100_000);
        assert_eq!(usage(-7), None);
    }
}
