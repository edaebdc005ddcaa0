//! The main context and `events`: what holds for whole processes.

use std::path::PathBuf;
use std::time::Duration;

use super::ErrorLog;

/// Process-wide settings.
#[derive(Debug, Clone, Default)]
pub struct Core {
    /// `user`: the account of the worker when the supervisor is root; `nobody` unless given.
    pub user: Account,
    /// `worker_processes`: worker threads; `None` for `auto`.
    pub worker_processes: Option<usize>,
    /// `worker_connections`: connections (clients and servers) that one worker thread may hold.
    pub worker_connections: usize,
    /// `worker_rlimit_nofile`.
    pub worker_rlimit_nofile: Option<u64>,
    /// `worker_memory`: how much memory the worker process may take.
    pub worker_memory: WorkerMemory,
    /// `worker_shutdown_timeout`: how long a graceful shutdown may take; `None` waits for ever.
    pub worker_shutdown_timeout: Option<Duration>,
    /// `worker_drain_timeout`: how long a worker that shuts down keeps idle client connections open for a last request.
    pub worker_drain_timeout: Duration,
    /// `worker_watchdog`.
    pub worker_watchdog: WorkerWatchdog,
    /// How the worker process runs.
    pub process: Process,
    /// `pid`: absolute path, or `None` for `pid off`.
    pub pid: Option<PathBuf>,
    /// `error_log` of the main context, resolved against the prefix.
    pub error_log: Vec<ErrorLog>,
    /// `daemon`.
    pub daemon: bool,
    /// `master_process`.
    pub master_process: bool,
}

/// When a worker thread counts as stopped, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerWatchdog {
    /// How long its event loop may not run; `None` for `off`.
    pub limit: Option<Duration>,
    /// The worker process is replaced; else it is only reported.
    pub restart: bool,
}

/// How much memory the worker process may take before it refuses work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkerMemory {
    /// As much as the limits of the system leave room for.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// So many bytes.
    Bytes(usize),
}

/// The account that the worker runs as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// User name.
    pub user: String,
    /// Group name; the user's own group unless given.
    pub group: Option<String>,
}

/// Directives of the main context that the worker process obeys when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// `worker_priority`: the nice value.
    pub priority: Option<i32>,
    /// `worker_cpu_affinity`.
    pub affinity: Option<CpuAffinity>,
    /// `worker_rlimit_core`, in bytes.
    pub rlimit_core: Option<u64>,
    /// There are private keys or keys of tickets: a core file would have them.
    pub has_keys: bool,
    /// `working_directory`: absolute path.
    pub working_directory: Option<PathBuf>,
    /// `env NAME=value`.
    pub environment: Vec<(String, String)>,
}

/// `worker_cpu_affinity`: which processors a worker may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuAffinity {
    /// `auto`: each worker has a processor of its own, of these or, without a mask, of all.
    Auto(Option<Processors>),
    /// The sets of the first workers; the last is that of the rest.
    Sets(Vec<Processors>),
}

/// Numbers of processors, ascending.
pub type Processors = Vec<usize>;

impl CpuAffinity {
    /// The processors of a worker, counted from 0, on a machine with so many; none if the mask is empty.
    pub fn of(&self, worker: usize, count: usize) -> Processors {
        match self {
            CpuAffinity::Auto(set) => {
                let all: Processors = (0..count).collect();
                let set = set.as_ref().unwrap_or(&all);
                // As in NGINX, processors that the machine does not have are skipped.
                let set: Vec<&usize> = set.iter().filter(|processor| **processor < count).collect();
                set.get(worker.checked_rem(set.len()).unwrap_or(0))
                    .map(|processor| vec![**processor])
                    .unwrap_or_default()
            }
            CpuAffinity::Sets(sets) => sets.get(worker).or(sets.last()).cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_their_processors() {
        let of = |affinity: &CpuAffinity| (0..4).map(|worker| affinity.of(worker, 3)).collect::<Vec<Processors>>();
        assert_eq!(of(&CpuAffinity::Auto(None)), [[0], [1], [2], [0]]);
        assert_eq!(of(&CpuAffinity::Auto(Some(vec![0, 2, 9]))), [[0], [2], [0], [2]]);
        assert_eq!(of(&CpuAffinity::Auto(Some(vec![]))), vec![Processors::new(); 4]);
        assert_eq!(of(&CpuAffinity::Sets(vec![vec![1], vec![0, 2]])), [vec![1], vec![0, 2], vec![0, 2], vec![0, 2]]);
    }
}
