//! Turns for work that keeps a thread for long, such as the handshakes of TLS: when many ask at once, the other tasks run
//! between one and the next.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{TURNS, with_loop};

/// So many runs of other tasks pay for a turn. About half of what it takes: other work comes first when both wait.
pub(super) const PRICE: usize = 32;
/// Turns that may be paid for in advance: by all tasks that run after a batch of events.
pub(super) const SAVED: usize = TURNS / PRICE;

/// Who waits for a turn, and what the other tasks have paid.
pub(super) struct Heavy {
    waiting: RefCell<VecDeque<(Rc<Cell<bool>>, Waker)>>,
    paid: Cell<usize>,
}

impl Default for Heavy {
    fn default() -> Heavy {
        Heavy { waiting: RefCell::default(), paid: Cell::new(SAVED * PRICE) }
    }
}

impl Heavy {
    fn pay(&self) -> bool {
        let enough = self.paid.get() >= PRICE;
        if enough {
            self.paid.set(self.paid.get() - PRICE);
        }
        enough
    }

    /// After some tasks have run: lets those that wait have the turns that are paid for, and one if nothing else is to do.
    pub(super) fn after(&self, ran: usize, idle: bool) {
        self.paid.set((self.paid.get() + ran).min(SAVED * PRICE));
        let mut free = idle;
        while !self.waiting.borrow().is_empty() && (self.pay() || std::mem::take(&mut free)) {
            let Some((granted, waker)) = self.waiting.borrow_mut().pop_front() else { return };
            granted.set(true);
            waker.wake();
            free = false;
        }
    }
}

/// A task's turn.
#[derive(Default)]
pub struct HeavyTurn(Option<Rc<Cell<bool>>>);

impl HeavyTurn {
    /// Waits for it.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let granted = self.0.get_or_insert_with(|| {
            let granted = Rc::new(Cell::new(false));
            with_loop(|event_loop| {
                let heavy = &event_loop.heavy;
                if heavy.waiting.borrow().is_empty() && heavy.pay() {
                    granted.set(true);
                } else {
                    heavy.waiting.borrow_mut().push_back((Rc::clone(&granted), cx.waker().clone()));
                }
            });
            granted
        });
        if granted.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}
