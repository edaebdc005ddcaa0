//! Turns for work that keeps a thread for long, such as the handshakes of TLS: when many ask at once, the other tasks run
//! between one and the next.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::with_loop;

/// So many runs of other tasks pay for a turn. About half of what it takes: other work comes first when both wait. No more
/// than one turn is paid for in advance.
pub(super) const PRICE: usize = 32;

/// Who waits for a turn, and what the other tasks have paid.
pub(super) struct Heavy {
    waiting: RefCell<VecDeque<(Rc<Cell<bool>>, Waker)>>,
    paid: Cell<usize>,
}

impl Default for Heavy {
    fn default() -> Heavy {
        Heavy { waiting: RefCell::default(), paid: Cell::new(PRICE) }
    }
}

impl Heavy {
    fn is_paid(&self) -> bool {
        self.paid.get() == PRICE
    }

    /// A task has run: wakes the next that waits, if its turn is paid for now.
    pub(super) fn after_run(&self) {
        self.paid.set((self.paid.get() + 1).min(PRICE));
        if self.is_paid() && self.grant() {
            self.paid.set(0);
        }
    }

    /// Wakes the next that waits, if one does.
    pub(super) fn grant(&self) -> bool {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some((granted, waker)) = next else { return false };
            // Otherwise its task has given up.
            if Rc::strong_count(&granted) > 1 {
                granted.set(true);
                waker.wake();
                return true;
            }
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
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
                if heavy.is_paid() && !heavy.is_waited_for() {
                    heavy.paid.set(0);
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
