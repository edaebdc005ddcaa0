//! How the worker process runs: its priority, its processors, its limits, its environment.

use std::path::PathBuf;

/// Directives of the main context that the worker process obeys when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// `worker_priority`: the nice value.
    pub priority: Option<i32>,
    /// `worker_cpu_affinity`.
    pub affinity: Option<CpuAffinity>,
    /// `worker_rlimit_core`, in bytes.
    pub rlimit_core: Option<u64>,
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
