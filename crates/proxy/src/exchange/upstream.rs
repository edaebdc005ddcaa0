//! What servers are asked, and what they answer.

use std::net::SocketAddr;

use balanza_balancing::Tried;
use balanza_message::{Fields, Header, Response};

use crate::servers::attempt::Attempt;

/// A request's dealings with servers.
#[derive(Default)]
pub struct Upstream {
    /// A server is being asked, so that messages name it.
    pub asking: bool,
    /// `$proxy_host`.
    pub host: Vec<u8>,
    /// `$proxy_port`.
    pub port: u16,
    /// Servers are spoken to in TLS (`https://`).
    pub speaks_tls: bool,
    /// The name that their certificates are for.
    pub tls_name: Vec<u8>,
    /// The URI part of a `proxy_pass` with variables.
    pub url_path: Vec<u8>,
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
    pub takes_streams: bool,
    /// Servers are spoken to in HTTP/2.
    pub is_http2: bool,
    /// By `grpc_pass`.
    pub is_grpc: bool,
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
    /// Where the request says that it belongs (`sticky`).
    pub session: Vec<u8>,
    /// What the client is told of where it belongs.
    pub session_fields: Fields,
    /// How many of `session_fields` are those of an earlier upstream.
    pub kept_session_fields: usize,
    /// Attempts to reach servers.
    pub attempts: Vec<Attempt>,
    /// Servers already tried.
    pub tried: Tried,
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

impl Upstream {
    /// Forgets the request, and keeps the room.
    pub fn clear(&mut self) {
        let Upstream {
            asking,
            host,
            port,
            speaks_tls,
            tls_name,
            url_path,
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
            session,
            session_fields,
            kept_session_fields,
            attempts,
            tried,
            answered,
            response: _,
            trailers,
            content_type,
            passed_fields,
        } = self;
        *speaks_tls = false;
        (*asking, *takes_streams, *upgrade_sent, *sent_whole, *answered) = (false, false, false, false, false);
        (*is_http2, *is_grpc, *is_tunnel, *trailers_follow, *length) = (false, false, false, false, None);
        (*port, *kept_session_fields) = (0, 0);
        (*bind, *content_type) = (None, None);
        for text in [host, tls_name, url_path, method, uri, head, body, key, session] {
            text.clear();
        }
        for fields in [fields, session_fields, trailers, passed_fields] {
            fields.clear();
        }
        attempts.clear();
        tried.clear();
    }

    /// Room in the texts that grow with a request and its response.
    pub fn capacity(&self) -> usize {
        let texts = [&self.uri, &self.url_path, &self.head, &self.key];
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
