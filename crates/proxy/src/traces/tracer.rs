//! The spans of a worker, collected in batches.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Span;
use super::exporter::{Batch, Exporter, Sender};
use crate::{essential, fault};

thread_local! {
    /// Of all configurations, so that reloads add nothing to what may wait.
    static PENDING: Arc<AtomicUsize> = Arc::default();
}

/// The spans of a worker under one configuration.
pub struct Tracer {
    sender: Sender,
    spans: RefCell<Vec<Span>>,
    /// A timer runs that sends them.
    is_due: Cell<bool>,
    /// Batches of this worker that are not sent yet.
    pending: Arc<AtomicUsize>,
}

impl Tracer {
    /// One that has no spans yet.
    pub fn new(exporter: &Exporter) -> Option<Rc<Tracer>> {
        let sender = exporter.sender()?;
        let pending = PENDING.with(Arc::clone);
        Some(Rc::new(Tracer { sender, spans: RefCell::default(), is_due: Cell::default(), pending }))
    }

    /// Takes a span; it is dropped if too many wait already.
    pub fn add(self: &Rc<Self>, span: Span) {
        if self.spans.borrow().len() >= self.sender.conf.batch_size && !self.flush() {
            self.sender.counts.dropped.fetch_add(1, Relaxed);
            return;
        }
        self.spans.borrow_mut().push(span);
        if self.spans.borrow().len() >= self.sender.conf.batch_size && self.flush() {
            return;
        }
        if !self.is_due.replace(true) {
            let (tracer, interval) = (Rc::downgrade(self), self.sender.conf.interval);
            tokio::task::spawn_local(essential::task("the batches of spans", async move {
                loop {
                    tokio::time::sleep(interval).await;
                    fault::point("timer");
                    // Without the configuration it has sent them.
                    let Some(tracer) = tracer.upgrade() else { return };
                    if tracer.flush() {
                        return tracer.is_due.set(false);
                    }
                }
            }));
        }
    }

    /// Sends what there is; false if too many batches wait.
    pub fn flush(&self) -> bool {
        if self.pending.load(Relaxed) >= self.sender.conf.batch_count {
            return false;
        }
        let spans = self.spans.take();
        if !spans.is_empty() {
            self.pending.fetch_add(1, Relaxed);
            self.sender.send(Batch { spans, pending: Arc::clone(&self.pending) });
        }
        true
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.flush() {
            self.sender.counts.dropped.fetch_add(self.spans.borrow().len() as u64, Relaxed);
        }
    }
}
