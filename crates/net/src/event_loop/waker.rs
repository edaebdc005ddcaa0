//! Wakers of the event loop's tasks: they are numbers and count no references.

#![expect(unsafe_code, reason = "a waker is made of a number")]

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::Remote;

/// Bits of a task's number that are its place in the table of tasks.
const INDEX_BITS: u32 = 24;
/// Bits above them that tell tasks of one place apart.
const GENERATION_BITS: u32 = 24;

/// A task of some thread's loop: thread, generation and place in one number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskId(u64);

impl TaskId {
    /// Most tasks that a thread can have.
    pub const MOST: usize = 1 << INDEX_BITS;

    /// Generations are counted modulo 2^24.
    pub fn new(thread: u16, generation: u32, index: usize) -> TaskId {
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        TaskId(u64::from(thread) << (INDEX_BITS + GENERATION_BITS) | generation << INDEX_BITS | index as u64)
    }

    /// Its place in the table.
    pub fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    fn thread(self) -> u16 {
        (self.0 >> (INDEX_BITS + GENERATION_BITS)) as u16
    }
}

/// The loops of all threads, by number.
static THREADS: Mutex<Vec<Arc<Remote>>> = Mutex::new(Vec::new());

/// Gives a thread its number, by which others find its loop.
pub(super) fn register_thread(remote: &Arc<Remote>) -> u16 {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    // The number of a thread that has ended is free: nothing else refers to its loop.
    let free = threads.iter().position(|known| Arc::strong_count(known) == 1);
    let number = free.unwrap_or_else(|| {
        threads.push(Arc::clone(remote));
        threads.len() - 1
    });
    threads[number] = Arc::clone(remote);
    u16::try_from(number).expect("fewer threads than 65,536")
}

/// The waker of a task.
pub(super) fn waker(task: TaskId) -> Waker {
    let data = std::ptr::without_provenance(task.0 as usize);
    // SAFETY: the functions of the table are safe, may be called on any thread, and read the pointer as the number that
    // it was made from: there is nothing to point to, to count or to free.
    unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &TABLE),
    |data| wake(TaskId(data.addr() as u64)),
    |data| wake(TaskId(data.addr() as u64)),
    |_| (),
);

fn wake(task: TaskId) {
    if super::wake_local(task, task.thread()) {
        return;
    }
    let remote = {
        let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.get(usize::from(task.thread())).cloned()
    };
    if let Some(remote) = remote {
        remote.wake(task);
    }
}

// A task's number has to fit a pointer.
const _: () = assert!(usize::BITS == 64);
