//! Wake-ups by other threads.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::waker::TaskId;

/// Tasks that other threads have woken.
#[derive(Default)]
pub struct Remote {
    /// Whether there are any, for a look without the lock.
    any: AtomicBool,
    woken: Mutex<Vec<TaskId>>,
    /// Of the runtime's task in which the loop runs.
    waker: Mutex<Option<Waker>>,
}

impl Remote {
    /// Wakes a task of the loop from another thread.
    pub fn wake(&self, task: TaskId) {
        lock(&self.woken).push(task);
        self.any.store(true, Release);
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    pub fn listen(&self, waker: &Waker) {
        let mut known = lock(&self.waker);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    pub fn has_woken(&self) -> bool {
        self.any.load(Acquire)
    }

    pub fn take_woken(&self, wake: impl FnMut(TaskId)) {
        if self.has_woken() {
            self.any.store(false, Release);
            std::mem::take(&mut *lock(&self.woken)).into_iter().for_each(wake);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
