//! Client affinity (`sticky`): the requests of a client go to the same server, as in NGINX.
//!
//! A server has an id: `route=`, or the MD5 of its address in hexadecimal. A request names its server by a cookie, by a
//! variable, or by a session in a table that the workers share and that is kept over reloads. A server that drains
//! still takes its own clients; one that is down, failed or full does not, and the algorithm chooses as if the client
//! were new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use balanza_balancing::{ClientTable, Driver, Member, Nanos, Tried};
use balanza_config::model::{self, Sticky, StickyLearn, UpstreamServer};
use balanza_config::template::{Template, Variable};
use balanza_net::clock;

use super::address::address_text;

/// The sessions of one upstream. Servers are kept by numbers that stay when the list of servers changes.
pub struct Sessions {
    table: ClientTable,
    numbers: Mutex<HashMap<Box<[u8]>, u32>>,
}

impl Sessions {
    fn new(learn: &StickyLearn) -> Sessions {
        let table = ClientTable::new(learn.entries, clock::nanos(learn.timeout));
        Sessions { table, numbers: Mutex::default() }
    }

    /// The numbers of servers by their ids, new ones for new ids.
    fn numbers(&self, ids: &[Box<[u8]>]) -> Vec<u32> {
        let mut known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = Vec::with_capacity(ids.len());
        for id in ids {
            let next = known.len() as u32;
            numbers.push(*known.entry(id.clone()).or_insert(next));
        }
        numbers
    }
}

/// The `sticky` of one upstream, shared by the workers.
pub struct Affinity {
    /// As configured.
    pub sticky: Sticky,
    /// The servers' ids, by member.
    ids: Vec<Box<[u8]>>,
    /// Servers by id, in their order.
    by_id: HashMap<Box<[u8]>, Vec<Member>>,
    /// Variables that name a request's server.
    pub lookup: Vec<Template>,
    sessions: Option<Arc<Sessions>>,
    /// The servers' numbers in the sessions, by member.
    numbers: Vec<u32>,
    /// Servers by number.
    by_number: HashMap<u32, Vec<Member>>,
}

impl Affinity {
    /// The affinity of an upstream, with the sessions of the configuration before.
    pub fn new(upstream: &model::Upstream, servers: &[UpstreamServer], before: Option<&Affinity>) -> Option<Affinity> {
        let sticky = upstream.sticky.clone()?;
        let ids: Vec<Box<[u8]>> = servers.iter().map(server_id).collect();
        let mut by_id: HashMap<Box<[u8]>, Vec<Member>> = HashMap::new();
        for (index, id) in ids.iter().enumerate() {
            by_id.entry(id.clone()).or_default().push(Member(index as u32));
        }
        let mut affinity = Affinity {
            lookup: Vec::new(),
            sessions: None,
            numbers: Vec::new(),
            by_number: HashMap::new(),
            ids,
            by_id,
            sticky,
        };
        match &affinity.sticky {
            Sticky::Cookie(cookie) => affinity.lookup = vec![Template::variable(Variable::Cookie(cookie.name.clone()))],
            Sticky::Route(variables) => affinity.lookup.clone_from(variables),
            Sticky::Learn(learn) => {
                let kept = before.and_then(|before| match &before.sticky {
                    Sticky::Learn(was) if was.entries == learn.entries && was.timeout == learn.timeout => {
                        before.sessions.clone()
                    }
                    _ => None,
                });
                let sessions = kept.unwrap_or_else(|| Arc::new(Sessions::new(learn)));
                affinity.numbers = sessions.numbers(&affinity.ids);
                for (index, number) in affinity.numbers.iter().enumerate() {
                    affinity.by_number.entry(*number).or_default().push(Member(index as u32));
                }
                affinity.sessions = Some(sessions);
                affinity.lookup.clone_from(&learn.lookup);
            }
        }
        Some(affinity)
    }

    /// The servers that a request belongs to, if any.
    fn servers(&self, session: &[u8], now: Nanos) -> &[Member] {
        let found = match &self.sessions {
            _ if session.is_empty() => None,
            Some(sessions) => {
                // As in NGINX, a session lives on by responses: requests alone do not prolong it.
                sessions.table.look(now, session_hash(session)).and_then(|number| self.by_number.get(&number))
            }
            None => self.by_id.get(session),
        };
        found.map_or(&[], Vec::as_slice)
    }

    /// Takes a slot of a server that the request belongs to.
    pub fn claim(&self, driver: &mut Driver, session: &[u8], now: Nanos, tried: &mut Tried) -> Option<Member> {
        let servers = self.servers(session, now).iter().copied();
        servers
            .into_iter()
            .find(|member| is_current(driver, *member, now, tried) && driver.claim(now, *member, tried, true).is_ok())
    }

    /// The id by which a server is known to clients.
    pub fn id(&self, member: Member) -> &[u8] {
        &self.ids[member.0 as usize]
    }

    /// A session continues with this server: one that is known, or a new one if it `begins`.
    pub fn keep(&self, name: &[u8], begins: bool, member: Member, now: Nanos) {
        let Some(sessions) = &self.sessions else { return };
        let hash = session_hash(name);
        if !name.is_empty() && (begins || sessions.table.look(now, hash).is_some()) {
            sessions.table.put(now, hash, self.numbers[member.0 as usize]);
        }
    }

    /// Whether sessions begin with a response's head rather than with its end.
    pub fn learns_early(&self) -> bool {
        matches!(&self.sticky, Sticky::Learn(StickyLearn { header: true, .. }))
    }

    /// Whether there are sessions to begin.
    pub fn learns(&self) -> bool {
        self.sessions.is_some()
    }
}

/// Whether a server belongs to the servers in use now: a client on a backup server leaves it when the others return.
pub fn is_current(driver: &Driver, member: Member, now: Nanos, tried: &Tried) -> bool {
    let fleet = driver.fleet();
    let rank = |member: Member| (fleet.server(member).backup, fleet.server(member).priority);
    let mine = rank(member);
    mine == (false, 0) || driver.candidates(now, tried).next().is_none_or(|first| rank(first.member) >= mine)
}

/// The id by which `sticky` identifies a server.
fn server_id(server: &UpstreamServer) -> Box<[u8]> {
    match &server.route {
        Some(route) => route.as_bytes().into(),
        None => format!("{:x}", md5::compute(&*address_text(&server.address))).into_bytes().into(),
    }
}

fn session_hash(name: &[u8]) -> u64 {
    let md5::Digest(digest) = md5::compute(name);
    u64::from_le_bytes(digest[..8].try_into().unwrap_or_default())
}
