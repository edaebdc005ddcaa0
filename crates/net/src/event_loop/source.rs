//! Watched descriptors.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::{self, EventData, EventFlags};

/// A descriptor that the loop watches for as long as this lives, on behalf of one task at a time.
///
/// Closing the last copy of the descriptor ends the watch in the kernel.
pub struct Registration {
    source: Rc<Source>,
}

impl Registration {
    /// Begins to watch. What is ready already is reported at the loop's next turn.
    ///
    /// # Errors
    /// The system's limit of watched descriptors.
    pub fn new(fd: impl AsFd) -> io::Result<Registration> {
        let event_loop = super::current()?;
        let registration = Registration { source: event_loop.add_source() };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&*event_loop.epoll, fd, EventData::new_u64(registration.source.token), flags)?;
        Ok(registration)
    }

    /// Watches something that is not a descriptor: its events come by the reporter.
    ///
    /// # Errors
    /// No descriptors for the loop.
    #[cfg(feature = "simulation")]
    pub fn simulated() -> io::Result<(Registration, Reporter)> {
        let source = super::current()?.add_source();
        Ok((Registration { source: Rc::clone(&source) }, Reporter(source)))
    }

    /// Ends the watch of a descriptor that others keep open: closing it would not.
    pub fn unwatch(&self, fd: impl AsFd) {
        let _ = super::with_loop(|event_loop| epoll::delete(&*event_loop.epoll, fd));
    }

    /// Waits until there may be something to read.
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, READ)
    }

    /// Waits until there may be room to write.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, WRITE)
    }

    /// Waits until the peer has closed its side, whatever else it has sent.
    pub fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, READ_CLOSED)
    }

    /// Whether anything to read was reported since the last [`Registration::clear_readable`].
    pub fn is_readable(&self) -> bool {
        self.source.ready.get() & READ != 0
    }

    /// Whether it was reported that the peer has closed its side.
    pub fn is_read_closed(&self) -> bool {
        self.source.ready.get() & READ_CLOSED != 0
    }

    /// A read found nothing, or less than it asked for: the next event will tell of more.
    #[inline]
    pub fn clear_readable(&self) {
        let ready = self.source.ready.get();
        // The end of a stream can be read for ever.
        if ready & READ_CLOSED == 0 {
            self.source.ready.set(ready & !READ);
        }
    }

    /// A write found no room: the next event will tell when there is some.
    pub fn clear_writable(&self) {
        self.source.ready.set(self.source.ready.get() & !WRITE);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The thread's loop may be gone before the last socket.
        let _ = super::with_loop(|event_loop| event_loop.remove_source(self.source.token));
    }
}

/// Reports the events of something that is watched.
#[cfg(feature = "simulation")]
#[derive(Clone)]
pub struct Reporter(Rc<Source>);

#[cfg(feature = "simulation")]
impl Reporter {
    /// This is ready now.
    pub fn report(&self, flags: EventFlags) {
        self.0.report(flags);
    }
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const READ_CLOSED: u8 = 4;

/// The readiness of one watched descriptor.
pub(super) struct Source {
    /// What the kernel tells its events by: generation and place.
    pub token: u64,
    /// What has happened since it was last cleared.
    ready: Cell<u8>,
    /// What `waker` waits for.
    interest: Cell<u8>,
    waker: Cell<Option<Waker>>,
}

impl Source {
    pub fn new(token: u64) -> Rc<Source> {
        Rc::new(Source { token, ready: Cell::new(0), interest: Cell::new(0), waker: Cell::new(None) })
    }

    #[inline]
    fn poll(&self, cx: &mut Context<'_>, what: u8) -> Poll<()> {
        if self.ready.get() & what != 0 {
            return Poll::Ready(());
        }
        self.waker.set(Some(cx.waker().clone()));
        self.interest.set(self.interest.get() | what);
        Poll::Pending
    }

    pub fn report(&self, flags: EventFlags) {
        let mut happened = 0;
        if flags.contains(EventFlags::IN) {
            happened |= READ;
        }
        if flags.contains(EventFlags::OUT) {
            happened |= WRITE;
        }
        if flags.contains(EventFlags::RDHUP) {
            happened |= READ | READ_CLOSED;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            happened |= READ | READ_CLOSED | WRITE;
        }
        self.ready.set(self.ready.get() | happened);
        if self.interest.get() & happened != 0 {
            self.interest.set(0);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}
