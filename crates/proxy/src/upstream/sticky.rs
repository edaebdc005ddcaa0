//! `sticky`: the requests of a client go to the same server, as in NGINX.
//!
//! A server has an id: `route=`, or the MD5 of its address in hexadecimal. A request names its server by a cookie, by a
//! variable, or by a session in a table that the workers share and that is kept over reloads. A server that drains
//! still takes its own clients; one that is down, failed or full does not, and the algorithm chooses as if the client
//! were new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use balanza_balancing::{ClientTable, Driver, Member, Nanos, Tried};
use balanza_config::log_text::Escaped;
use balanza_config::model::{self, CookieExpires, Level, Sticky, StickyCookie, StickyLearn, UpstreamServer};
use balanza_config::template::{Template, Variable};
use balanza_net::clock;

use crate::exchange::Exchange;
use crate::variables::{self, Undecided};

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
    sticky: Sticky,
    /// The servers' ids, by member.
    ids: Vec<Box<[u8]>>,
    /// Servers by id, in their order.
    by_id: HashMap<Box<[u8]>, Vec<Member>>,
    /// Variables that name a request's server.
    lookup: Vec<Template>,
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

    /// Computes the server that a request names: `x.upstream.session`, empty if it names none.
    ///
    /// # Errors
    /// A regular expression is undecided.
    pub fn look_up(&self, x: &mut Exchange) -> Result<(), Undecided> {
        let mut session = std::mem::take(&mut x.upstream.session);
        first_value(&self.lookup, x, &mut session)?;
        x.upstream.session = session;
        // A second upstream of the same request adds its cookie to that of the first.
        x.upstream.kept_session_fields = x.upstream.session_fields.len();
        Ok(())
    }

    /// The servers that a request belongs to, if any.
    fn servers(&self, session: &[u8], now: Nanos) -> &[Member] {
        let found = match &self.sessions {
            _ if session.is_empty() => None,
            Some(sessions) => {
                sessions.table.get(now, session_hash(session)).and_then(|number| self.by_number.get(&number))
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

    /// A server was chosen: `sticky cookie` puts its cookie into `x.upstream.session_fields`, in place of that of an earlier
    /// attempt.
    ///
    /// # Errors
    /// A regular expression is undecided.
    pub fn tell(&self, x: &mut Exchange, member: Member) -> Result<(), Undecided> {
        let Sticky::Cookie(cookie) = &self.sticky else { return Ok(()) };
        let mut value = Vec::new();
        write_cookie(cookie, &self.ids[member.0 as usize], x, &mut value)?;
        x.upstream.session_fields.truncate(x.upstream.kept_session_fields);
        x.upstream.session_fields.push(b"Set-Cookie", &value);
        Ok(())
    }

    /// Whether sessions begin with a response's head rather than with its end.
    pub fn learns_early(&self) -> bool {
        matches!(&self.sticky, Sticky::Learn(StickyLearn { header: true, .. }))
    }

    /// Whether there are sessions to begin.
    pub fn learns(&self) -> bool {
        self.sessions.is_some()
    }

    /// A server has answered: its response may begin a session, and a known session continues with this server. The
    /// response may have been sent already, so an undecided name begins no session.
    pub fn learn(&self, x: &mut Exchange, member: Member) {
        let (Some(sessions), Sticky::Learn(learn)) = (&self.sessions, &self.sticky) else { return };
        let mut name = std::mem::take(&mut x.scratch);
        let Ok(creates) = first_value(&learn.create, x, &mut name) else { return };
        if !creates {
            name.clone_from(&x.upstream.session);
        }
        let now = clock::recent();
        let hash = session_hash(&name);
        if !name.is_empty() && (creates || sessions.table.get(now, hash).is_some()) {
            sessions.table.put(now, hash, self.numbers[member.0 as usize]);
        }
        x.scratch = name;
    }
}

/// Whether a server belongs to the servers in use now: a client on a backup server leaves it when the others return.
pub(super) fn is_current(driver: &Driver, member: Member, now: Nanos, tried: &Tried) -> bool {
    let fleet = driver.fleet();
    let rank = |member: Member| (fleet.server(member).backup, fleet.server(member).priority);
    let mine = rank(member);
    mine == (false, 0) || driver.candidates(now, tried).next().is_none_or(|first| rank(first.member) >= mine)
}

/// The id by which `sticky` identifies a server.
fn server_id(server: &UpstreamServer) -> Box<[u8]> {
    match &server.route {
        Some(route) => route.as_bytes().into(),
        None => format!("{:x}", md5::compute(&*super::group::address_text(&server.address))).into_bytes().into(),
    }
}

fn session_hash(name: &[u8]) -> u64 {
    let md5::Digest(digest) = md5::compute(name);
    u64::from_le_bytes(digest[..8].try_into().unwrap_or_default())
}

/// The first value that is not empty; false, and nothing, if there is none.
fn first_value(templates: &[Template], x: &mut Exchange, out: &mut Vec<u8>) -> Result<bool, Undecided> {
    out.clear();
    for template in templates {
        variables::render(template, x, out)?;
        if !out.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes a Set-Cookie field's value, its attributes in NGINX's order.
fn write_cookie(cookie: &StickyCookie, id: &[u8], x: &mut Exchange, out: &mut Vec<u8>) -> Result<(), Undecided> {
    out.extend_from_slice(&cookie.name);
    out.push(b'=');
    out.extend_from_slice(id);
    match cookie.expires {
        CookieExpires::Session => {}
        CookieExpires::Max => {
            out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000");
        }
        CookieExpires::After(time) => {
            out.extend_from_slice(b"; expires=");
            crate::dates::write_cookie_time(clock::wall() + time, out);
            out.extend_from_slice(b"; max-age=");
            balanza_message::push_decimal(out, time.as_secs());
        }
    }
    let mut value = std::mem::take(&mut x.scratch);
    if let Some(domain) = &cookie.domain {
        value.clear();
        variables::render(domain, x, &mut value)?;
        attribute("domain", &value, x, out);
    }
    if cookie.httponly {
        out.extend_from_slice(b"; httponly");
    }
    if cookie.secure {
        out.extend_from_slice(b"; secure");
    }
    if let Some(samesite) = &cookie.samesite {
        value.clear();
        variables::render(samesite, x, &mut value)?;
        let known = [&b"strict"[..], b"lax", b"none"].iter().any(|word| word.eq_ignore_ascii_case(&value));
        attribute("samesite", if known || value.is_empty() { &value } else { b"strict" }, x, out);
    }
    x.scratch = value;
    if let Some(path) = &cookie.path {
        attribute("path", path, x, out);
    }
    Ok(())
}

/// An attribute, unless its value is empty or a variable made it more than one.
fn attribute(name: &str, value: &[u8], x: &Exchange, out: &mut Vec<u8>) {
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0 | b';')) {
        let text = "of a sticky cookie is left out, because its value has a line end, a NUL or a \";\":";
        x.report(Level::Error, format_args!("\"{name}\" {text} \"{}\"", Escaped(value)));
    } else if !value.is_empty() {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value);
    }
}
