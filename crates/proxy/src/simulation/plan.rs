//! What clients and servers are going to do, drawn from the seed.

use balanza_net::simulation::Random;

/// How much of what happens in a run. Half of the kinds of trouble are missing in each run, so that some runs have to be
/// free of errors and others have one kind alone.
#[derive(Debug, Clone)]
pub struct Knobs {
    /// The run's seed.
    pub seed: u64,
    pub servers: u64,
    pub clients: u64,
    /// Most requests of a connection.
    pub requests: u64,
    /// The following are of a hundred.
    pub pipelines: u64,
    pub client_faults: u64,
    pub server_faults: u64,
    pub early: u64,
    pub refuses: u64,
    pub silent: u64,
    /// Servers close connections that they said they would keep.
    pub closes_idle: u64,
    pub pauses: u64,
    pub large: u64,
    /// Configurations after the first.
    pub reloads: u64,
    /// Changes of the upstream's servers.
    pub changes: u64,
    /// Requests are sent to a second server.
    pub hedges: bool,
    /// Requests that authenticate their connections to servers; the upstream has `ntlm` if there are any.
    pub authenticates: u64,
}

impl Knobs {
    /// Those of a seed.
    pub fn new(seed: u64) -> Knobs {
        let mut random = Random::new(seed);
        let mut sometimes = |most: u64| if random.percent(50) { random.size(most) } else { 0 };
        Knobs {
            seed,
            pipelines: sometimes(80),
            client_faults: sometimes(40),
            server_faults: sometimes(40),
            early: sometimes(30),
            refuses: sometimes(40),
            silent: sometimes(10),
            closes_idle: sometimes(40),
            pauses: sometimes(40),
            large: sometimes(60),
            reloads: sometimes(4),
            changes: sometimes(10),
            servers: random.between(1, 4),
            clients: random.between(1, 12),
            requests: random.between(1, 6),
            hedges: random.percent(40),
            authenticates: if random.percent(40) { random.size(60) } else { 0 },
        }
    }

    /// Nothing of this run keeps a request from its first server.
    pub fn reaches_servers(&self) -> bool {
        self.refuses + self.silent + self.closes_idle == 0
    }

    fn length(&self, random: &mut Random) -> usize {
        match random.below(10) {
            0 => 0,
            _ if random.percent(self.large) => random.size(250_000) as usize,
            _ => random.size(3_000) as usize,
        }
    }
}

/// A location, as far as it matters for what may happen.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The directives of the location.
    pub text: String,
    /// `non_idempotent`.
    pub repeats_all: bool,
    /// Failures are tried again.
    pub retries: bool,
    pub tries: u64,
    /// A 503 is tried again.
    pub retries_503: bool,
    /// A 503 is replaced.
    pub replaces_503: bool,
    pub request_buffering: bool,
    /// `limit_rate`.
    pub rate: Option<u64>,
    /// Requests go on when the client has gone.
    pub ignores_abort: bool,
}

/// A body as its sender frames it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Length(usize),
    Chunked(usize),
    UntilClose(usize),
}

impl Body {
    pub fn len(self) -> usize {
        match self {
            Body::None => 0,
            Body::Length(length) | Body::Chunked(length) | Body::UntilClose(length) => length,
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The location of this number asks a server.
    Proxied(usize),
    /// A file of so many bytes.
    File(usize),
    /// A text of the configuration.
    Text,
    /// The connection changes its protocol; so many bytes go there and back.
    Tunnel(usize, usize),
}

/// What a client does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFault {
    None,
    /// Nothing comes after so many bytes of the request.
    Stalls(usize),
    /// The connection is closed or reset after so many.
    Leaves(usize, bool),
    /// The connection is closed or reset after so many bytes of the response.
    LeavesReading(usize, bool),
    /// The response is not read for a long time.
    ReadsLate,
    /// Nothing will follow this request, and the client says so by ending its direction.
    HalfCloses,
}

/// A request.
#[derive(Debug, Clone)]
pub struct RequestPlan {
    pub id: u64,
    pub kind: Kind,
    pub method: &'static str,
    pub http10: bool,
    pub body: Body,
    /// `Expect: 100-continue`.
    pub expects: bool,
    /// It authenticates its connection to a server.
    pub authenticates: bool,
    /// The last of its connection.
    pub close: bool,
    pub fault: ClientFault,
}

impl RequestPlan {
    /// A request of a client; `last` of its connection.
    pub fn new(id: u64, knobs: &Knobs, places: &[Place], last: bool, random: &mut Random) -> RequestPlan {
        let kind = match random.below(20) {
            0 => Kind::File(random.pick(&FILES)),
            1 => Kind::Text,
            2 if last => Kind::Tunnel(knobs.length(random), knobs.length(random)),
            _ => Kind::Proxied(random.below(places.len() as u64) as usize),
        };
        let mut method = match random.percent(50) {
            true => "GET",
            false => random.pick(&["HEAD", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
        };
        if matches!(kind, Kind::File(_) | Kind::Tunnel(..)) {
            method = "GET";
        }
        let http10 = !matches!(kind, Kind::Tunnel(..)) && random.percent(8);
        let may_have_body = method != "HEAD" && matches!(kind, Kind::Proxied(_));
        let body = match random.below(if method == "GET" { 10 } else { 3 }) {
            0 | 1 if may_have_body && !http10 && random.percent(50) => Body::Chunked(knobs.length(random)),
            0 | 1 if may_have_body => Body::Length(knobs.length(random)),
            _ => Body::None,
        };
        let fault = match random.percent(knobs.client_faults) {
            true => ClientFault::draw(body, last, random),
            false => ClientFault::None,
        };
        let expects = body.len() > 0 && !http10 && random.percent(20);
        let authenticates = random.percent(knobs.authenticates);
        let close = last && random.percent(50);
        RequestPlan { id, kind, method, http10, body, expects, authenticates, close, fault }
    }

    /// By RFC 9110.
    pub fn is_idempotent(&self) -> bool {
        !matches!(self.method, "POST" | "PATCH")
    }

    /// The beginning of the message.
    pub fn head(&self) -> Vec<u8> {
        let path = match self.kind {
            Kind::Proxied(place) => format!("/p{place}/{}", self.id),
            Kind::File(length) => format!("/files/{length}"),
            Kind::Text => "/text".to_owned(),
            Kind::Tunnel(..) => format!("/tunnel/{}", self.id),
        };
        let version = if self.http10 { "1.0" } else { "1.1" };
        let mut head = format!("{} {path} HTTP/{version}\r\nHost: test\r\nX-Id: {}\r\n", self.method, self.id);
        match self.body {
            Body::Length(length) => head += &format!("Content-Length: {length}\r\n"),
            Body::Chunked(_) => head += "Transfer-Encoding: chunked\r\n",
            Body::None | Body::UntilClose(_) => {}
        }
        if self.authenticates {
            head += "Authorization: NTLM abc\r\n";
        }
        if self.expects {
            head += "Expect: 100-continue\r\n";
        }
        if matches!(self.kind, Kind::Tunnel(..)) {
            head += "Connection: upgrade\r\nUpgrade: test\r\n";
        } else if self.close {
            head += "Connection: close\r\n";
        } else if self.http10 {
            head += "Connection: keep-alive\r\n";
        }
        head += "\r\n";
        head.into_bytes()
    }
}

/// How many ids the requests of a client have.
pub const CLIENT_IDS: u64 = 1000;

/// Lengths of the files that there are.
pub const FILES: [usize; 4] = [0, 10, 5_000, 150_000];

/// The text of the location that has one.
pub const TEXT: &str = "a text of the configuration";

impl ClientFault {
    fn draw(body: Body, last: bool, random: &mut Random) -> ClientFault {
        // Somewhere in the head, or in the body.
        let somewhere = random.below(100 + body.len() as u64) as usize;
        match random.below(6) {
            0 => ClientFault::Stalls(somewhere),
            1 => ClientFault::Leaves(somewhere, random.percent(50)),
            2 => ClientFault::LeavesReading(random.size(10_000) as usize, random.percent(50)),
            3 => ClientFault::ReadsLate,
            4 if last => ClientFault::HalfCloses,
            _ => ClientFault::None,
        }
    }
}

/// What a server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    None,
    /// It closes or resets the connection when it has read the request's head.
    Leaves(bool),
    /// It closes in the middle of the response's head.
    LeavesInHead,
    /// What it sends is not HTTP.
    Garbage,
    /// It never answers.
    Silent,
    /// It closes or resets after so many bytes of the body.
    Cuts(usize, bool),
    /// It stops after so many.
    Stalls(usize),
    /// A chunk has no valid size.
    BadChunk(usize),
    /// Another response follows that was not asked for.
    SaysMore,
}

/// When a server answers before it has read the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    No,
    /// It reads the rest afterwards.
    Reads,
    /// It closes afterwards.
    Closes,
}

/// A server's behaviour towards one request.
#[derive(Debug, Clone)]
pub struct AttemptPlan {
    pub status: u16,
    pub body: Body,
    /// Interim responses before the real one.
    pub interim: u64,
    /// Milliseconds before the response.
    pub delay: u64,
    pub early: Early,
    /// It says that it closes, and does.
    pub close: bool,
    /// It closes without having said so.
    pub closes_idle: bool,
    pub fault: ServerFault,
}

impl AttemptPlan {
    /// The plan for a request's attempt of this number: the same whichever server it reaches.
    pub fn new(request: &RequestPlan, number: u64, knobs: &Knobs) -> AttemptPlan {
        let mut seeds = Random::new(knobs.seed ^ request.id.wrapping_mul(0x9e37_79b9) ^ number << 56);
        let mut random = seeds.split();
        let random = &mut random;
        let status = match random.below(10) {
            0 => random.pick(&[201, 204, 304, 404, 500, 503]),
            1 => 503,
            _ => 200,
        };
        let length = knobs.length(random);
        let body = match random.below(6) {
            _ if matches!(status, 204 | 304) => Body::None,
            _ if request.method == "HEAD" => Body::Length(length),
            0 | 1 => Body::Chunked(length),
            2 => Body::UntilClose(length),
            _ => Body::Length(length),
        };
        let fault = match random.percent(knobs.server_faults) {
            true => ServerFault::draw(body, random),
            false => ServerFault::None,
        };
        let early = match random.percent(knobs.early) {
            true => random.pick(&[Early::Reads, Early::Closes]),
            false => Early::No,
        };
        AttemptPlan {
            status,
            body,
            interim: if random.percent(10) { random.between(1, 3) } else { 0 },
            delay: if random.percent(knobs.pauses) { random.size(1_500) } else { 0 },
            early,
            close: random.percent(15) || matches!(body, Body::UntilClose(_)) || early == Early::Closes,
            closes_idle: random.percent(knobs.closes_idle),
            fault,
        }
    }

    /// The request is answered as planned whatever the proxy does.
    pub fn is_good(&self) -> bool {
        self.fault == ServerFault::None && self.early == Early::No
    }
}

impl ServerFault {
    fn draw(body: Body, random: &mut Random) -> ServerFault {
        let somewhere = random.below(body.len().max(1) as u64) as usize;
        match random.below(9) {
            // A response that is complete when it is cut would be none that is cut.
            5..=7 if body.len() == 0 => ServerFault::Leaves(false),
            0 | 1 => ServerFault::Leaves(random.percent(50)),
            2 => ServerFault::LeavesInHead,
            3 => ServerFault::Garbage,
            4 => ServerFault::Silent,
            5 => ServerFault::Cuts(somewhere, random.percent(50) || matches!(body, Body::UntilClose(_))),
            6 => ServerFault::Stalls(somewhere),
            7 if matches!(body, Body::Chunked(_)) => ServerFault::BadChunk(somewhere),
            _ => ServerFault::SaysMore,
        }
    }
}

/// The sender of a body, for [`content`].
pub const CLIENT: u64 = u64::MAX;

/// A piece of the body that belongs to a request and its sender: a client, or an attempt's number.
pub fn content(id: u64, sender: u64, from: usize, length: usize) -> Vec<u8> {
    let word = |index: usize| Random::new(id << 32 ^ sender << 24 ^ index as u64).next().to_le_bytes();
    let mut bytes = Vec::with_capacity(length + 16);
    for index in from / 8..=(from + length) / 8 {
        bytes.extend_from_slice(&word(index));
    }
    bytes.drain(..from % 8);
    bytes.truncate(length);
    bytes
}
