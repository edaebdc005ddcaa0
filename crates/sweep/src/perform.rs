//! Runs on the processors of this machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use crate::record::Record;
use crate::unit::Unit;

/// Performs the units on `jobs` threads. `finished` gets the records as they come; its first error and that of a run end
/// the work, after the runs in flight.
pub fn side_by_side(
    count: usize,
    jobs: usize,
    unit: impl Fn(usize) -> Unit + Sync,
    mut finished: impl FnMut(Record) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (next, stop) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    let (send, records) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            let (send, unit) = (send.clone(), &unit);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let index = next.fetch_add(1, Relaxed);
                    if index >= count || send.send(unit(index).perform()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let result = records.iter().try_for_each(|record| finished(record?));
        stop.store(true, Relaxed);
        result
    })
}
