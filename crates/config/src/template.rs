//! Values with variables, compiled once: `"$host:$server_port"` is a list of literals and [`Variable`]s.

mod by_name;
mod client;

pub use by_name::{Family, VariableNames};
pub use client::ClientValue;

/// A slot of a request's user variables (`set`, named captures).
pub type UserSlot = usize;

/// A value with variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    parts: Vec<Part>,
}

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes as they are.
    Literal(Box<[u8]>),
    /// A variable's value.
    Variable(Variable),
}

impl Template {
    /// A template of these parts.
    pub fn new(parts: Vec<Part>) -> Template {
        Template { parts }
    }

    /// A template without variables.
    pub fn literal(bytes: impl Into<Box<[u8]>>) -> Template {
        let bytes = bytes.into();
        Template { parts: if bytes.is_empty() { Vec::new() } else { vec![Part::Literal(bytes)] } }
    }

    /// The value of one variable.
    pub fn variable(variable: Variable) -> Template {
        Template { parts: vec![Part::Variable(variable)] }
    }

    /// Its parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether it names the server that a request is sent to.
    pub fn names_server(&self) -> bool {
        let names =
            |variable: &Variable| matches!(variable, Variable::UpstreamLastAddr | Variable::UpstreamLastServerName);
        self.parts.iter().any(|part| matches!(part, Part::Variable(variable) if names(variable)))
    }

    /// The value, when it has no variables.
    pub fn as_literal(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [Part::Literal(bytes)] => Some(bytes),
            _ => None,
        }
    }
}

/// A variable of a request. Names in variants are lower case, with `_` for `-`, as in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Variable {
    /// `$1` … `$9`: of the last regular expression that matched.
    Capture(u8),
    /// `set` and named captures.
    User(UserSlot),
    /// What `set` has put in the place of another variable, or else that one.
    Changed(UserSlot, Box<Variable>),
    /// The variable of a `map`, `geo` or `split_clients`: index into the `maps` of its protocol.
    Map(usize),
    Arg(Box<[u8]>),
    Cookie(Box<[u8]>),
    Http(Box<[u8]>),
    SentHttp(Box<[u8]>),
    SentTrailer(Box<[u8]>),
    UpstreamHttp(Box<[u8]>),
    UpstreamCookie(Box<[u8]>),
    UpstreamTrailer(Box<[u8]>),
    /// `$args` and `$query_string`.
    Args,
    BinaryRemoteAddr,
    BodyBytesSent,
    /// Of a session of `stream`, from the client.
    BytesReceived,
    BytesSent,
    /// What only a cache of responses, or something else that does not exist here, would set: there is no value.
    CacheStatus,
    /// What is known of the client beside its connection.
    Client(ClientValue),
    Connection,
    /// `$connections_…`.
    Connections(Connections),
    /// `$tcpinfo_…`.
    TcpInfo(TcpInfo),
    /// `$otel_…`.
    Trace(TraceValue),
    ConnectionRequests,
    ConnectionTime,
    ContentLength,
    ContentType,
    /// Of `ssi`.
    DateGmt,
    DateLocal,
    DocumentRoot,
    GzipRatio,
    Host,
    Hostname,
    Http2,
    Https,
    IsArgs,
    IsRequestPort,
    LimitConnStatus,
    LimitRate,
    LimitReqStatus,
    Msec,
    NginxVersion,
    Pid,
    Pipe,
    ProxyAddXForwardedFor,
    ProxyHost,
    ProxyPort,
    /// Of a session of `stream`: "TCP".
    Protocol,
    /// Balanza's own: the value of a cookie of this name in the connection request of RDP.
    RdpCookie(Box<[u8]>),
    RealpathRoot,
    RemoteAddr,
    RemotePort,
    RemoteUser,
    Request,
    RequestBody,
    RequestBodyFile,
    RequestCompletion,
    RequestFilename,
    RequestId,
    RequestLength,
    RequestMethod,
    RequestPort,
    RequestTime,
    RequestUri,
    Scheme,
    ServerAddr,
    ServerName,
    ServerPort,
    ServerProtocol,
    SessionTime,
    /// `$ssl_…`.
    Ssl(Ssl),
    Status,
    TimeIso8601,
    TimeLocal,
    /// `$uri` and `$document_uri`.
    Uri,
    UpstreamAddr,
    UpstreamBytesReceived,
    UpstreamBytesSent,
    UpstreamConnectTime,
    UpstreamFirstByteTime,
    UpstreamHeaderTime,
    /// The address of the server that was tried last, without its port.
    UpstreamLastAddr,
    /// The name of the server that was tried last, as its `server` directive has it.
    UpstreamLastServerName,
    /// Balanza's own: whether a second server was asked.
    UpstreamHedge,
    /// `$upstream_experiment`.
    UpstreamExperiment,
    /// Balanza's own: why the server was chosen.
    UpstreamPickReason,
    /// Balanza's own: how likely the choice was.
    UpstreamChoiceProbability,
    /// Balanza's own: the server that the shadow of this name would have chosen.
    UpstreamShadow(&'static str),
    UpstreamResponseLength,
    UpstreamQueueTime,
    UpstreamResponseTime,
    UpstreamSessionTime,
    UpstreamStatus,
}

/// What the system knows of the TCP connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpInfo {
    /// The round-trip time, in microseconds.
    Rtt,
    /// How much it varies, in microseconds.
    RttVariation,
    /// The congestion window, in segments.
    CongestionWindow,
    /// Room for what the client sends, in bytes.
    ReceiveSpace,
}

/// What is known of the trace that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceValue {
    /// The trace.
    TraceId,
    /// The span of the request.
    SpanId,
    /// The span that the client has named; none if it has not.
    ParentId,
    /// "1" if the client has said that its span is kept, else "0".
    ParentSampled,
}

/// Clients' connections of all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connections {
    /// Open.
    Active,
    /// Of these, those whose request head is not complete.
    Reading,
    /// Those that wait for a request.
    Waiting,
    /// The others: a request is served.
    Writing,
}

/// What is known of TLS with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ssl {
    AlpnProtocol,
    Cipher,
    Ciphers,
    ClientCert,
    ClientEscapedCert,
    ClientFingerprint,
    ClientIssuer,
    ClientIssuerLegacy,
    ClientRawCert,
    ClientSerial,
    ClientSubject,
    ClientSubjectLegacy,
    ClientEnd,
    ClientRemain,
    ClientStart,
    ClientVerify,
    Curve,
    Curves,
    EarlyData,
    Protocol,
    ServerName,
    SessionId,
    SessionReused,
    /// Of `ssl_preread`.
    PrereadAlpnProtocols,
    PrereadProtocol,
    PrereadServerName,
}
