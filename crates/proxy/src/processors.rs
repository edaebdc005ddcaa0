//! `worker_cpu_affinity`: which processors a worker thread runs on.

use balanza_config::model::Level;
use balanza_net::shortage::describe;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::log::error::ErrorWriter;
use crate::running_config::Generation;

/// Binds this thread to the processors of a worker. A configuration without the directive leaves it where it is.
pub fn choose(worker: usize, generation: &Generation) {
    let core = &generation.config.core;
    let Some(affinity) = &core.process.affinity else { return };
    // Those of the machine: the thread itself may be bound to some of them already.
    let count = std::fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| last(&text));
    let count = count.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut set = CpuSet::new();
    for processor in affinity.of(worker, count).into_iter().filter(|processor| *processor < CpuSet::MAX_CPU) {
        set.set(processor);
    }
    if set.count() == 0 || sched_getaffinity(None).is_ok_and(|now| now == set) {
        return;
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        let errors = ErrorWriter::new(&core.error_log, &generation.logs);
        errors.write(Level::Alert, format_args!("sched_setaffinity() failed {}", describe(&error.into())));
    }
}

/// How many processors there are by the list of the system, such as "0-3" or "0,2-7".
fn last(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse::<usize>().ok().map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!((last("0-3\n"), last("0,2-7"), last("0"), last("")), (Some(4), Some(8), Some(1), None));
    }
}
