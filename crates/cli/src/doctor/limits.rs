//! Limits of processes and control groups.

use balanza_config::model::WorkerMemory;

use super::finding::Finding;
use super::needs::Needs;

/// The hard limit of open files in /proc/PID/limits; none for "unlimited".
pub fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// Whether there are descriptors for all connections. `of` says whose limit it is.
pub fn descriptors(needs: &Needs, threads: usize, hard: Option<u64>, is_root: bool, of: &str) -> Finding {
    const CHECK: &str = "open files";
    let Some(hard) = hard else { return Finding::unknown(CHECK, format!("the limit of {of} cannot be read")) };
    let wanted = needs.descriptors(threads);
    let each = wanted.div_ceil(threads.max(1) as u64);
    let ulimit = format!("LimitNOFILE={wanted} (systemctl edit balanza), or ulimit -n {wanted} before the start");
    let raise = if is_root { format!("worker_rlimit_nofile {each}; in the configuration") } else { ulimit.clone() };
    let set = needs.rlimit_nofile.map(|each| each.saturating_mul(threads as u64));
    if let Some(set) = set.filter(|set| *set > hard && !is_root) {
        let found = format!("worker_rlimit_nofile asks for {set}, the hard limit of {of} is {hard}");
        return Finding::error(CHECK, found, ulimit);
    }
    let limit = set.unwrap_or(hard);
    let whose = if set.is_some() { "worker_rlimit_nofile".to_string() } else { format!("limit of {of}") };
    if limit >= wanted {
        let limit = if limit == u64::MAX { "unlimited".to_string() } else { limit.to_string() };
        return Finding::fine(CHECK, format!("{limit} ({whose}), {wanted} for all connections"));
    }
    let found = format!(
        "{limit} ({whose}), {wanted} for {threads} threads with {} connections: connections would wait, and requests \
         get 500",
        needs.connections
    );
    if limit < needs.descriptors(threads) - needs.all_connections(threads) {
        return Finding::error(CHECK, found, raise);
    }
    Finding::warning(CHECK, found, raise)
}

/// `MemTotal` of /proc/meminfo, in bytes.
pub fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Whether the kernel would kill the worker, or slow it down, before it limits itself. `most` is the control group's limit
/// (`memory.max`), `high` what it takes before the kernel slows it down (`memory.high`).
pub fn memory(set: WorkerMemory, most: Option<u64>, high: Option<u64>, total: Option<u64>) -> Finding {
    const CHECK: &str = "memory";
    let exceeds = |limit: u64| matches!(set, WorkerMemory::Bytes(bytes) if bytes as u64 > limit);
    let high = high.filter(|high| most.is_none_or(|most| *high < most));
    let (limit, whose, kills) = match (most.or(total), high) {
        (hard, Some(high)) if !hard.is_some_and(exceeds) => (high, "memory.high of the control group", false),
        (Some(hard), _) if most.is_some() => (hard, "the control group's limit", true),
        (Some(hard), _) => (hard, "the machine's memory", true),
        (None, _) => return Finding::unknown(CHECK, "neither the machine's memory nor a limit can be read"),
    };
    let fate = if kills { "the process is killed" } else { "the process is slowed down" };
    let is_of_group = most.or(high).is_some();
    let shown = mebibytes(limit);
    let advised = format!("worker_memory {}m; or worker_memory auto;", (limit / 5 * 4) >> 20);
    match set {
        WorkerMemory::Bytes(bytes) if exceeds(limit) => {
            let found = format!("worker_memory is {}, {whose} is {shown}: {fate}", mebibytes(bytes as u64));
            if kills { Finding::error(CHECK, found, advised) } else { Finding::warning(CHECK, found, advised) }
        }
        WorkerMemory::Bytes(bytes) if exceeds(limit / 10 * 9) => {
            let found = format!("worker_memory is {}, {whose} is {shown}: too little is left", mebibytes(bytes as u64));
            Finding::warning(CHECK, found, advised)
        }
        WorkerMemory::Bytes(bytes) => {
            Finding::fine(CHECK, format!("worker_memory is {}, {whose} is {shown}", mebibytes(bytes as u64)))
        }
        WorkerMemory::Off if is_of_group => {
            let found = format!("worker_memory is off, {whose} is {shown}: {fate} when it needs more");
            Finding::warning(CHECK, found, "worker_memory auto;")
        }
        WorkerMemory::Auto if is_of_group => {
            Finding::fine(CHECK, format!("worker_memory auto is 80 % of {shown}, {whose}"))
        }
        WorkerMemory::Auto | WorkerMemory::Off => Finding::fine(CHECK, format!("no limit; {whose} is {shown}")),
    }
}

/// Processors in cpu.max of a control group of version 2 ("200000 100000"); none for "max".
pub fn quota(cpu_max: &str) -> Option<f64> {
    let mut fields = cpu_max.split_whitespace();
    let (quota, period) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Whether there are processors for the threads. `available` are those that this process may run on.
pub fn processors(set: Option<usize>, available: usize, quota: Option<f64>) -> Finding {
    const CHECK: &str = "processors";
    let threads = set.unwrap_or(available);
    let word = set.map_or_else(|| "auto".to_string(), |set| set.to_string());
    if let Some(quota) = quota.filter(|quota| (threads as f64) > quota.ceil()) {
        let found = format!("{threads} threads share {quota:.1} processors of the control group and are stopped by it");
        return Finding::warning(CHECK, found, "worker_processes auto;");
    }
    if threads > available {
        let found = format!("{threads} threads share {available} processors");
        return Finding::warning(CHECK, found, "worker_processes auto;");
    }
    Finding::fine(CHECK, format!("worker_processes {word}: {threads} of {available}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State::{Error, Fine, Unknown, Warning};
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max processes             31793                31793                processes
Max open files            1024                 1048576              files
";

    #[test]
    fn the_hard_limit_is_read() {
        assert_eq!(hard_limit(LIMITS), Some(1_048_576));
        assert_eq!(hard_limit("Max open files   1024  unlimited  files"), Some(u64::MAX));
        assert_eq!(hard_limit("nothing"), None);
    }

    #[test]
    fn descriptors_are_compared_with_the_connections() {
        let needs = Needs { connections: 1000, ..Needs::default() };
        let of = |needs: &Needs, hard, is_root| descriptors(needs, 2, hard, is_root, "this shell");
        assert_eq!(of(&needs, Some(10_000), false).state, Fine);
        let short = of(&needs, Some(1024), true);
        assert_eq!(
            (short.state, short.fix.as_deref()),
            (Warning, Some("worker_rlimit_nofile 1032; in the configuration"))
        );
        assert!(of(&needs, Some(1024), false).fix.unwrap().contains("ulimit -n 2064"));
        assert_eq!(of(&needs, Some(20), false).state, Error);
        let set = Needs { rlimit_nofile: Some(1500), ..needs };
        assert_eq!(of(&set, Some(1024), true).state, Fine);
        assert_eq!(of(&set, Some(1024), false).state, Error);
        assert_eq!(of(&set, None, false).state, Unknown);
    }

    #[test]
    fn memory_is_compared_with_the_smallest_limit() {
        let bytes = |mebibytes: usize| WorkerMemory::Bytes(mebibytes << 20);
        let mib = |mebibytes: u64| Some(mebibytes << 20);
        for (set, cgroup, total, state) in [
            (bytes(200), mib(100), mib(8000), Error),
            (bytes(95), mib(100), mib(8000), Warning),
            (bytes(80), mib(100), mib(8000), Fine),
            (bytes(9000), None, mib(8000), Error),
            (WorkerMemory::Off, mib(100), mib(8000), Warning),
            (WorkerMemory::Off, None, mib(8000), Fine),
            (WorkerMemory::Auto, mib(100), mib(8000), Fine),
            (WorkerMemory::Auto, None, None, Unknown),
        ] {
            assert_eq!(memory(set, cgroup, None, total).state, state, "{set:?} {cgroup:?} {total:?}");
            // One that is not lower is of no use.
            let higher = cgroup.map(|cgroup| cgroup + 1);
            assert_eq!(memory(set, cgroup, higher, total), memory(set, cgroup, None, total));
        }
        assert_eq!(total_memory("MemFree: 1 kB\nMemTotal:       24613000 kB\n"), Some(24_613_000 << 10));
        assert_eq!(total_memory(""), None);
    }

    #[test]
    fn memory_above_high_slows_down() {
        let mib = |mebibytes: u64| Some(mebibytes << 20);
        let of = |set, most| {
            let found = memory(set, most, mib(50), mib(8000));
            (found.state, found.found)
        };
        let bytes = |mebibytes: usize| WorkerMemory::Bytes(mebibytes << 20);
        let high = "memory.high of the control group";
        let slow = |set: &str| format!("{set}, {high} is 50 MiB: the process is slowed down");
        assert_eq!(of(WorkerMemory::Auto, mib(100)), (Fine, format!("worker_memory auto is 80 % of 50 MiB, {high}")));
        for most in [mib(100), None] {
            let off = format!("{} when it needs more", slow("worker_memory is off"));
            assert_eq!(of(WorkerMemory::Off, most), (Warning, off));
            assert_eq!(of(bytes(80), most), (Warning, slow("worker_memory is 80 MiB")));
            assert_eq!(of(bytes(40), most).0, Fine);
        }
        let killed = "worker_memory is 200 MiB, the control group's limit is 100 MiB: the process is killed";
        assert_eq!(of(bytes(200), mib(100)), (Error, killed.to_string()));
        assert_eq!(of(bytes(9000), None).0, Error);
    }

    #[test]
    fn threads_are_compared_with_processors() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000"), None);
        assert_eq!(processors(None, 4, None).state, Fine);
        assert_eq!(processors(Some(2), 4, Some(1.5)).state, Fine);
        assert_eq!(processors(Some(3), 4, Some(1.5)).state, Warning);
        assert_eq!(processors(Some(8), 4, None).state, Warning);
    }
}
