//! What servers are asked, and what they answer.

use std::net::SocketAddr;

use balanza_balancing::Tried;
use balanza_config::model::HttpVersion;
use balanza_message::{Fields, Header, Response};

use crate::certificates::Names;
use crate::servers::attempt::Attempt;
use crate::servers::bound::{Bindings, BoundServer};

/// A request's dealings with servers.
#[derive(Default)]
pub struct Upstream {
    /// A server is being asked, so that messages name it.
    pub asking: bool,
    /// Where servers are looked for.
    pub target: Target,
    /// Affinity to a server.
    pub session: Session,
    /// What the client's connection of HTTP/1 is bound to by `ntlm`: lent to each of its requests, and none of others.
    pub bindings: Option<Box<Bindings>>,
    /// The server that the client is bound to by `ntlm`.
    pub bound: Option<BoundServer>,
    /// The request authenticates its connection, in an upstream with `ntlm`.
    pub authenticates: bool,
    /// The method that servers are asked with.
    pub method: Vec<u8>,
    /// The URI that servers are asked for.
    pub uri: Vec<u8>,
    /// The fields that servers are sent.
    pub fields: Fields,
    /// The request's head on its way to a server.
    pub head: Vec<u8>,
    /// The text of `proxy_set_body`.
    pub body: Vec<u8>,
    /// Servers take bodies of unknown length: HTTP/1.1 or HTTP/2.
    takes_streams: bool,
    /// Servers are spoken to in HTTP/2.
    is_http2: bool,
    /// By `grpc_pass`.
    is_grpc: bool,
    /// The response says that the tunnel of a CONNECT is open.
    pub is_tunnel: bool,
    /// The length of the body that servers are sent, if known (HTTP/2).
    pub length: Option<u64>,
    /// Trailers may follow the body of a response, whatever its length (HTTP/2).
    pub trailers_follow: bool,
    /// The server was asked to change the protocol.
    pub upgrade_sent: bool,
    /// The request went to the server whole, so that the connection is at its border.
    pub sent_whole: bool,
    /// The local address of `proxy_bind`.
    pub bind: Option<SocketAddr>,
    /// The key of a hashing algorithm.
    pub key: Vec<u8>,
    /// Those of shadows.
    pub shadow_keys: Vec<Vec<u8>>,
    /// Attempts to reach servers.
    pub attempts: Vec<Attempt>,
    /// Servers already tried.
    pub tried: Tried,
    /// Whether a second server was asked at the same time.
    pub hedged: Hedged,
    /// There is a response of a server.
    pub answered: bool,
    /// Its head.
    pub response: Response,
    /// Its trailers.
    pub trailers: Fields,
    /// The media type that a server gave with an X-Accel-Redirect.
    pub content_type: Option<Vec<u8>>,
    /// Other fields of that response that the client is to get.
    pub passed_fields: Fields,
}

/// What `hedge` did for a request.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Hedged {
    /// Nothing.
    #[default]
    No,
    /// It was late, but there was no second server, or no budget.
    Refused,
    /// A second server was asked; it has not answered first.
    Lost,
    /// It has.
    Won,
}

/// What `proxy_pass` names.
#[derive(Default)]
pub struct Target {
    /// Servers are spoken to in TLS (`https://`).
    pub tls: bool,
    /// `$proxy_host`.
    pub host: Vec<u8>,
    /// `$proxy_port`.
    pub port: u16,
    /// The name that the servers' certificates are for.
    pub tls_name: Vec<u8>,
    /// The certificate that servers are shown, if the request names it.
    pub certificate: Option<Box<Names>>,
    /// The URI part of a `proxy_pass` with variables.
    pub url_path: Vec<u8>,
}

impl Target {
    fn clear(&mut self) {
        let Target { tls, host, port, tls_name, certificate, url_path } = self;
        (*tls, *port, *certificate) = (false, 0, None);
        for text in [host, tls_name, url_path] {
            text.clear();
        }
    }
}

/// What a request says of the server it wants, and what its client is told about the server it gets.
#[derive(Default)]
pub struct Session {
    name: Vec<u8>,
    fields: Fields,
    /// The fields of upstreams that were asked before.
    kept: usize,
}

impl Session {
    fn clear(&mut self) {
        let Session { name, fields, kept } = self;
        name.clear();
        fields.clear();
        *kept = 0;
    }

    /// The name of the server or session that the request names; empty if it names none.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The text of the last name, for another one.
    pub fn take_name(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.name)
    }

    /// Begins with another upstream; its field joins those of the upstreams before.
    pub fn begin(&mut self, name: Vec<u8>) {
        self.name = name;
        self.kept = self.fields.len();
    }

    /// Tells the client which server it has got, in place of what an earlier attempt said.
    pub fn tell(&mut self, name: &[u8], value: &[u8]) {
        self.fields.truncate(self.kept);
        self.fields.push(name, value);
    }

    /// The fields for the client.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }
}

impl Upstream {
    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Upstream {
            asking,
            target,
            session,
            bindings,
            bound,
            authenticates,
            method,
            uri,
            fields,
            head,
            body,
            takes_streams,
            is_http2,
            is_grpc,
            is_tunnel,
            length,
            trailers_follow,
            upgrade_sent,
            sent_whole,
            bind,
            key,
            shadow_keys: _,
            attempts,
            tried,
            hedged,
            answered,
            response: _,
            trailers,
            content_type,
            passed_fields,
        } = self;
        target.clear();
        session.clear();
        (*asking, *takes_streams, *upgrade_sent, *sent_whole, *answered) = (false, false, false, false, false);
        (*is_http2, *is_grpc, *is_tunnel, *trailers_follow, *length) = (false, false, false, false, None);
        (*bindings, *bound, *authenticates) = (None, None, false);
        (*bind, *content_type, *hedged) = (None, None, Hedged::No);
        for text in [method, uri, head, body, key] {
            text.clear();
        }
        for fields in [fields, trailers, passed_fields] {
            fields.clear();
        }
        attempts.clear();
        tried.clear();
    }

    /// Sets what servers are spoken to in.
    pub fn speak(&mut self, version: HttpVersion, grpc: bool) {
        self.takes_streams = version != HttpVersion::Http10;
        self.is_http2 = version == HttpVersion::Http2;
        self.is_grpc = grpc;
    }

    /// Whether servers take bodies of unknown length: HTTP/1.1 or HTTP/2.
    pub fn takes_streams(&self) -> bool {
        self.takes_streams
    }

    /// Whether servers are spoken to in HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Whether the request goes on by `grpc_pass`.
    pub fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Room in the texts that grow with a request and its response.
    pub fn capacity(&self) -> usize {
        let texts = [&self.uri, &self.target.url_path, &self.head, &self.key];
        texts.into_iter().map(Vec::capacity).sum::<usize>() + self.fields.capacity() + self.response.capacity()
    }

    /// The current attempt to reach a server.
    pub fn attempt(&mut self) -> &mut Attempt {
        Attempt::current(&mut self.attempts)
    }

    /// The client is to get some fields of a response, whatever answers it.
    pub fn pass_fields_of(&mut self, response: &Response, is_passed: impl Fn(Header, &[u8]) -> bool) {
        for item in &response.fields {
            let (name, value) = (item.name.of(&response.text), item.value.of(&response.text));
            if is_passed(item.header, name) {
                self.passed_fields.push(name, value);
            }
        }
    }

    /// The value of a known field of the server's response.
    pub fn response_field(&self, header: Header) -> Option<&[u8]> {
        if self.answered { self.response.find(header) } else { None }
    }
}
