//! What the plan does to servers, by their places.

use anyhow::Context;
use nix::sys::signal::Signal;

use super::Servers;
use super::own::Own;
use crate::record::Deed;

impl Servers {
    /// Does something to a server. Returns whether it is done: what has to wait is to be asked for again. A server that is
    /// away is waited for by everything but its start.
    ///
    /// Errors: it does not start again, or does not do what it is told.
    pub(crate) fn perform(&mut self, place: usize, deed: Deed, factor: f64) -> anyhow::Result<bool> {
        let own = self.own(place)?;
        if deed == Deed::Start {
            if own.serves() {
                return Ok(true);
            }
            if own.is_gone() {
                own.again()?;
            }
            return own.listens();
        }
        // One that is frozen serves as well, as far as this goes.
        if !own.serves() {
            return Ok(false);
        }
        match deed {
            Deed::Stop => own.leave(),
            Deed::Kill => own.kill(),
            Deed::Freeze => own.signal(Signal::SIGSTOP),
            Deed::Thaw => own.signal(Signal::SIGCONT),
            Deed::Slow => own.change(&format!("slower={factor}"))?,
            Deed::Fast => own.change("slower=1")?,
            Deed::Fail => own.change("failing=on")?,
            Deed::Work => own.change("failing=off")?,
            Deed::Start => {}
        }
        Ok(true)
    }

    /// Whether a server that was told to stop has ended.
    pub(crate) fn is_gone(&mut self, place: usize) -> anyhow::Result<bool> {
        Ok(self.own(place)?.is_gone())
    }

    /// The process of a server, if it has one.
    pub(crate) fn pid(&mut self, place: usize) -> Option<i32> {
        self.own(place).ok()?.pid()
    }

    /// Ends what would keep servers from answering and ending: those that are frozen go on.
    pub(crate) fn thaw(&self) {
        self.0.iter().filter_map(|server| server.own.as_ref()).for_each(|own| own.signal(Signal::SIGCONT));
    }

    fn own(&mut self, place: usize) -> anyhow::Result<&mut Own> {
        let own = self.0.get_mut(place).and_then(|server| server.own.as_mut());
        own.context("an event of a server that the lab has not started")
    }
}
