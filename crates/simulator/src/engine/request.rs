//! The requests in the system.

use balanza_balancing::{Nanos, Tried};

/// No request.
pub(crate) const NONE: u32 = u32::MAX;

/// A request, from its arrival to its end, or an attempt that everybody but the server has forgotten: a cache line.
#[repr(align(64))]
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub arrived: Nanos,
    /// When the server of this attempt was chosen.
    pub sent: Nanos,
    /// Work at speed 1.
    pub work: Nanos,
    /// When its service began.
    pub started: Nanos,
    /// Behind it in the server's queue.
    pub next: u32,
    pub server: u32,
    pub key: u32,
    /// Counts the attempts in this place: events of others are not for it.
    pub generation: u32,
    pub dispatcher: u16,
    pub attempt: u8,
    /// Times that it found the listen queue full.
    pub knocks: u8,
    /// Which of the dispatchers' beginnings it was sent after.
    pub epoch: u16,
    /// Other requests in flight there: for the dispatcher when it was sent, and for the server when it came.
    pub found: u16,
    pub found_there: u16,
    /// Given up by its client: the server does not know.
    pub orphan: bool,
    /// The server has answered this attempt with an error status.
    pub error: bool,
    /// Of this attempt: it finds out whether an ejected server works again.
    pub probe: bool,
    /// At its server, waiting or served.
    pub at_server: bool,
    pub live: bool,
    /// The second attempt of a request that goes on: see `twins`.
    pub hedge: bool,
}

/// All of them, in places that are used again.
#[derive(Default)]
pub(crate) struct Requests {
    all: Vec<Request>,
    /// One for each place, if requests are tried again.
    tried: Vec<Tried>,
    /// The other attempt of a request that has two at the same time, for each place, if there may be any.
    twins: Vec<u32>,
    retries: bool,
    hedges: bool,
    free: u32,
}

impl Requests {
    pub fn new(retries: bool, hedges: bool) -> Requests {
        let retries = retries || hedges;
        Requests { all: Vec::new(), tried: Vec::new(), twins: Vec::new(), retries, hedges, free: NONE }
    }

    /// A place for a request, with a new generation.
    #[inline]
    pub fn add(&mut self, request: Request) -> u32 {
        if self.free == NONE {
            self.all.push(Request { live: true, ..request });
            if self.retries {
                self.tried.push(Tried::default());
            }
            if self.hedges {
                self.twins.push(NONE);
            }
            return self.all.len() as u32 - 1;
        }
        let id = self.free;
        let place = &mut self.all[id as usize];
        self.free = place.next;
        let generation = place.generation;
        *place = Request { generation, live: true, ..request };
        if self.retries {
            self.tried[id as usize].clear();
        }
        id
    }

    #[inline]
    pub fn remove(&mut self, id: u32) {
        let place = &mut self.all[id as usize];
        debug_assert!(place.live);
        place.live = false;
        place.generation = place.generation.wrapping_add(1);
        place.next = self.free;
        self.free = id;
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Request {
        &self.all[id as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Request {
        &mut self.all[id as usize]
    }

    /// Moves what is to be tried again to a place of its own; the server keeps the old one.
    pub fn split(&mut self, id: u32) -> u32 {
        let request = self.get(id).clone();
        self.get_mut(id).orphan = true;
        let again = self.add(Request { orphan: false, at_server: false, ..request });
        if self.retries {
            self.tried[again as usize] = self.tried[id as usize].clone();
        }
        again
    }

    /// A second attempt of a request at another server, in a place of its own.
    pub fn double(&mut self, id: u32) -> u32 {
        let request = self.get(id).clone();
        let second = self.add(Request { hedge: true, at_server: false, probe: false, ..request });
        self.tried[second as usize] = self.tried[id as usize].clone();
        (self.twins[id as usize], self.twins[second as usize]) = (second, id);
        second
    }

    /// The other attempt of the request.
    #[inline]
    pub fn twin(&self, id: u32) -> Option<u32> {
        self.twins.get(id as usize).copied().filter(|twin| *twin != NONE)
    }

    /// The two attempts have nothing to do with each other any more.
    pub fn part(&mut self, one: u32, other: u32) {
        (self.twins[one as usize], self.twins[other as usize]) = (NONE, NONE);
    }

    /// What the request has tried, if requests are tried again.
    #[inline]
    pub fn tried(&mut self, id: u32) -> Option<&mut Tried> {
        self.tried.get_mut(id as usize)
    }

    /// The places of what is at a server.
    pub fn at_server(&self, server: u32) -> Vec<u32> {
        let there = |r: &Request| r.live && r.at_server && r.server == server;
        (0..self.all.len() as u32).filter(|id| there(self.get(*id))).collect()
    }

    /// Requests whose clients wait.
    pub fn waited_for(&self) -> u64 {
        self.all.iter().filter(|r| r.live && !r.orphan && !r.hedge).count() as u64
    }
}
