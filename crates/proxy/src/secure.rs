//! TLS with clients: the handshake, and what is known after it.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use balanza_config::template::Ssl;
use balanza_message::push_decimal;
use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop::HeavyTurn;
use balanza_net::timer::Timer;
use balanza_net::tls::{Failure, Secured};
use balanza_net::transport::Transport;
use balanza_tls::client::ClientConfig;
use balanza_tls::hello::{self, ClientHello, First};
use balanza_tls::identity::{self, Identity};
use balanza_tls::pki_types::ServerName;
use balanza_tls::server::{Context, Verified};
use balanza_tls::{ciphers, encode, groups, protocols};

use crate::metrics::ConnectionMetrics;
use crate::servers::failure::{Cause, Doing, Failure as Failed};
use crate::values::{found, nonempty, write};

/// The alert that there is no server of the name that the client asks for.
const UNRECOGNIZED_NAME: u8 = 112;
/// The alert of a fault that is not the client's.
const INTERNAL_ERROR: u8 = 80;

/// Why a connection ends that `pass` hands to an address of `listen … ssl` after another one has begun TLS.
pub const TWICE: &str = "a connection that speaks TLS already was passed to an address with \"ssl\"";

/// What is known of a client with whom TLS is spoken.
pub struct ClientTls {
    /// What was agreed on.
    pub secured: Secured,
    /// What the client began with.
    pub hello: ClientHello,
    /// Whether its certificate is trusted.
    pub verified: Verified,
    /// What the handshake was made by.
    pub context: Arc<Context>,
    identity: OnceCell<Option<Identity>>,
}

/// How a connection to a socket of `listen … ssl` begins.
pub enum Begun {
    /// TLS is spoken.
    Secured(Box<ClientTls>),
    /// The client does not speak TLS, and has sent this.
    Plain(Buffer),
    /// The connection is over; with a reason for the log, unless the client has just gone.
    Over(Option<String>),
    /// The connection is over, since the server's certificate cannot be loaded.
    Unprepared(String),
}

impl Begun {
    /// Counts the handshake.
    pub fn count(&self, metrics: &ConnectionMetrics) {
        match self {
            Begun::Secured(tls) => {
                metrics.handshakes.add(1);
                metrics.session_reuses.add(tls.secured.resumed.into());
            }
            Begun::Plain(_) | Begun::Over(Some(_)) | Begun::Unprepared(_) => metrics.handshakes_failed.add(1),
            Begun::Over(None) => {}
        }
    }
}

/// The first message of a client that is to be answered.
pub struct Greeting {
    /// What it says.
    pub hello: ClientHello,
    /// Its bytes.
    received: Buffer,
    turn: HeavyTurn,
}

/// Reads the first message of the client. `received` was read from it before.
///
/// # Errors
/// What there is in its place.
pub async fn greeting(
    socket: &Transport,
    timer: &mut Timer,
    deadline: Nanos,
    received: Option<Buffer>,
) -> Result<Greeting, Begun> {
    let mut buffer = received.unwrap_or_else(Buffer::take);
    loop {
        match hello::read(buffer.unread()) {
            First::Hello(hello) => return Ok(Greeting { hello, received: buffer, turn: HeavyTurn::default() }),
            First::Foreign => return Err(Begun::Plain(buffer)),
            First::Malformed => {
                return Err(Begun::Over(Some("SSL_do_handshake() failed (SSL: bad first message)".into())));
            }
            First::Incomplete if buffer.space().is_empty() => {
                return Err(Begun::Over(Some("SSL_do_handshake() failed (SSL: first message too large)".into())));
            }
            First::Incomplete => {}
        }
        let read = poll_fn(|cx| match socket.poll_recv(cx, &mut buffer, usize::MAX) {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            read => read,
        });
        match read.await {
            Ok(read) if read > 0 => {}
            Ok(_) => return Err(Begun::Over(None)),
            Err(error) => return Err(Begun::Over(Some(reason(&error)))),
        }
    }
}

impl Greeting {
    /// Waits until there is time for work that other connections must wait for.
    ///
    /// # Errors
    /// The client's time is over.
    pub async fn wait_for_turn(&mut self, timer: &mut Timer, deadline: Nanos) -> Result<(), Begun> {
        let granted = poll_fn(|cx| match self.turn.poll(cx) {
            Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(false),
            turn => turn.map(|()| true),
        });
        if granted.await { Ok(()) } else { Err(Begun::Over(Some(reason(&io::ErrorKind::TimedOut.into())))) }
    }

    /// Completes the handshake.
    pub async fn answer(
        mut self,
        socket: &Transport,
        timer: &mut Timer,
        deadline: Nanos,
        context: Option<Arc<Context>>,
    ) -> Begun {
        let Some(context) = context else {
            return Begun::Over(Some("no certificate for this handshake".into()));
        };
        if context.rejects {
            alert(socket, UNRECOGNIZED_NAME).await;
            return Begun::Over(Some("handshake rejected".into()));
        }
        if let Err(error) = socket.begin_tls_server(Arc::clone(&context.config), Some(self.received)) {
            return Begun::Over(Some(reason(&error)));
        }
        let shaken = poll_fn(|cx| {
            let shaken = match self.turn.poll(cx) {
                Poll::Ready(()) => socket.poll_handshake(cx),
                Poll::Pending => Poll::Pending,
            };
            match shaken {
                Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                shaken => shaken,
            }
        });
        if let Err(error) = shaken.await {
            return Begun::Over(Some(reason(&error)));
        }
        let Some(secured) = socket.secured() else { return Begun::Over(None) };
        let verified = context.clients.verify(Some(&secured.certificates));
        let hello = self.hello;
        Begun::Secured(Box::new(ClientTls { secured, hello, verified, context, identity: OnceCell::new() }))
    }

    /// Ends the handshake without a certificate; `why` is for the error log.
    pub async fn refuse(self, socket: &Transport, why: String) -> Begun {
        alert(socket, INTERNAL_ERROR).await;
        Begun::Unprepared(format!("{why} while SSL handshaking"))
    }
}

/// Sends a fatal alert in place of an answer.
async fn alert(socket: &Transport, description: u8) {
    let record = [21, 3, 3, 0, 2, 2, description];
    // It fits, or the client does not learn why.
    poll_fn(|cx| {
        let _ = socket.poll_send(cx, &[io::IoSlice::new(&record)], true);
        Poll::Ready(())
    })
    .await;
}

/// Waits for a connection to a server, and makes it an encrypted one.
///
/// # Errors
/// It does not stand, or TLS could not be agreed on.
pub async fn connect(
    socket: &Transport,
    timer: &mut Timer,
    deadline: Nanos,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<(), Failed> {
    let connected = poll_fn(|cx| match socket.poll_connected(cx) {
        Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
        result => result.map_err(|error| Cause::of("connect", error, Cause::Connect)),
    });
    connected.await.map_err(Failed::connecting)?;
    let failed = |cause| Failed { cause, doing: Doing::Handshaking, sent: false };
    socket.begin_tls_client(config, name).map_err(|error| failed(Cause::Handshake(error)))?;
    let shaken = poll_fn(|cx| match socket.poll_handshake(cx) {
        Poll::Pending if timer.poll_expired(cx, deadline) => Poll::Ready(Err(Cause::TimedOut)),
        result => result.map_err(Cause::Handshake),
    });
    let shaken = shaken.await;
    clock::now();
    shaken.map_err(failed)
}

/// Why a handshake has failed, in NGINX's form.
pub fn reason(error: &io::Error) -> String {
    match Failure::of(error) {
        Some(failure) => format!("SSL_do_handshake() failed (SSL: {failure})"),
        None if error.kind() == io::ErrorKind::TimedOut => "client timed out while SSL handshaking".into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "peer closed connection in SSL handshake".into(),
        None => format!("{} while SSL handshaking", balanza_net::shortage::describe(error)),
    }
}

impl ClientTls {
    fn identity(&self) -> Option<&Identity> {
        let read = || self.secured.certificates.first().and_then(identity::of);
        self.identity.get_or_init(read).as_ref()
    }

    fn text<'a>(&'a self, part: impl Fn(&'a Identity) -> &'a str) -> Option<&'a [u8]> {
        self.identity().map(|identity| part(identity).as_bytes())
    }

    /// Appends the value of a variable; false when it has none. `now` is in seconds since 1970.
    pub fn value(&self, variable: Ssl, now: i64, out: &mut Vec<u8>) -> bool {
        let secured = &self.secured;
        match variable {
            Ssl::AlpnProtocol => found(secured.alpn.as_deref(), out),
            Ssl::Cipher => found(Some(ciphers::name(secured.suite).as_bytes()), out),
            Ssl::Curve => found(secured.group.and_then(groups::name).map(str::as_bytes), out),
            // Requests are served after the handshake only.
            Ssl::EarlyData => false,
            Ssl::Protocol => found(Some(protocols::name(secured.version).as_bytes()), out),
            Ssl::SessionId => false,
            Ssl::SessionReused => found(Some(if secured.resumed { b"r" } else { b"." }), out),
            Ssl::ClientVerify => match self.verified {
                Verified::None => found(Some(b"NONE"), out),
                Verified::Success => found(Some(b"SUCCESS"), out),
                Verified::Failed(rejection) => write(out, format_args!("FAILED:{}", rejection.reason)),
            },
            Ssl::ClientSubject => found(self.text(|it| &it.subject), out),
            Ssl::ClientIssuer => found(self.text(|it| &it.issuer), out),
            Ssl::ClientSubjectLegacy => found(self.text(|it| &it.subject_legacy), out),
            Ssl::ClientIssuerLegacy => found(self.text(|it| &it.issuer_legacy), out),
            Ssl::ClientSerial => found(self.text(|it| &it.serial), out),
            Ssl::ClientStart => found(self.text(|it| &it.not_before), out),
            Ssl::ClientEnd => found(self.text(|it| &it.not_after), out),
            Ssl::ClientRemain => self.identity().is_some_and(|identity| {
                push_decimal(out, u64::try_from((identity.ends - now) / 86_400).unwrap_or(0));
                true
            }),
            Ssl::ClientRawCert => found(self.pem().as_deref().map(str::as_bytes), out),
            Ssl::ClientCert => {
                // As a field's value: lines go on after a tab.
                let pem = self.pem().map(|pem| pem.trim_end().replace('\n', "\n\t"));
                found(pem.as_deref().map(str::as_bytes), out)
            }
            Ssl::ClientEscapedCert => {
                let Some(pem) = self.pem() else { return false };
                balanza_message::uri::escape(pem.as_bytes(), balanza_message::uri::Escape::Component, out);
                true
            }
            Ssl::ClientFingerprint => {
                let fingerprint = secured.certificates.first().map(|certificate| encode::sha1(certificate));
                found(fingerprint.as_deref().map(str::as_bytes), out)
            }
            Ssl::Ciphers
            | Ssl::Curves
            | Ssl::ServerName
            | Ssl::PrereadAlpnProtocols
            | Ssl::PrereadProtocol
            | Ssl::PrereadServerName => of_hello(&self.hello, variable, out),
        }
    }

    fn pem(&self) -> Option<String> {
        self.secured.certificates.first().map(|certificate| encode::pem(certificate))
    }
}

/// Appends what the client has said in its first message; false when it has not.
pub fn of_hello(hello: &ClientHello, variable: Ssl, out: &mut Vec<u8>) -> bool {
    match variable {
        Ssl::Ciphers => names(hello.suites.iter().map(|suite| ciphers::name_of_number(*suite)), out),
        Ssl::Curves => names(hello.groups.iter().map(|group| groups::name_of_number(*group)), out),
        Ssl::ServerName | Ssl::PrereadServerName => found(hello.server_name.as_deref().map(str::as_bytes), out),
        Ssl::PrereadProtocol => nonempty(protocols::offered(hello.version).as_bytes(), out),
        Ssl::PrereadAlpnProtocols => nonempty(&hello.alpn.join(&b','), out),
        _ => false,
    }
}

/// Appends names with colons between them; false without any.
fn names(names: impl Iterator<Item = String>, out: &mut Vec<u8>) -> bool {
    nonempty(names.collect::<Vec<_>>().join(":").as_bytes(), out)
}
