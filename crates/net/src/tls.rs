//! TLS on a stream: records in and out of buffers of ours, by rustls without its own.
//!
//! There is no system call here. Records that have come are decrypted where they lie; a buffer is held only while a record
//! is incomplete or something is not written yet, so that an idle connection has none.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{
    ClientConfig, CommonState, Error, HandshakeKind, NamedGroup, ProtocolVersion, ServerConfig, SupportedCipherSuite,
};

use crate::buffer::{self, Buffer};

/// Bytes that are encrypted at a time.
const BATCH: usize = 3 * RECORD;
/// Room for them with the heads and tags of their records, of which the shortest have 512 bytes.
const ENCRYPTED: usize = BATCH + 4096;
/// Bytes in a record at most.
const RECORD: usize = 16384;
/// What has to be free in the buffer of what goes out, for a message of the handshake.
const MESSAGE: usize = RECORD + 512;

/// What was agreed on in a handshake.
#[derive(Debug, Clone)]
pub struct Secured {
    /// The version of TLS.
    pub version: ProtocolVersion,
    /// The cipher suite.
    pub suite: SupportedCipherSuite,
    /// The group of the key exchange; none if a session of TLS 1.2 was resumed.
    pub group: Option<NamedGroup>,
    /// The application protocol.
    pub alpn: Option<Box<[u8]>>,
    /// An earlier session goes on.
    pub resumed: bool,
    /// What the peer has shown, its own certificate first.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// Whose part we play.
enum Role {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// A TLS connection without its socket.
pub(crate) struct Tls {
    role: Role,
    /// Records, or the beginning of one, that were not processed.
    incoming: Option<Buffer>,
    /// Plaintext that the reader had no room for, and how much of it was read since.
    plain: Vec<u8>,
    plain_read: usize,
    /// Records that were not written.
    outgoing: Option<Buffer>,
    /// Bytes of the writer's in `outgoing`.
    accepted: usize,
    peer_closed: bool,
    closed: bool,
    failed: bool,
}

/// Where processing has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There is plaintext.
    Plain,
    /// More has to come first.
    Incomplete,
    /// What goes out has to be written first.
    Full,
    /// The peer has said that nothing more will come.
    Closed,
}

/// Where plaintext goes.
struct Sink<'a> {
    into: Option<(&'a mut Buffer, usize)>,
    taken: usize,
    rest: &'a mut Vec<u8>,
}

impl Sink<'_> {
    fn push(&mut self, mut bytes: &[u8]) {
        if let Some((buffer, limit)) = &mut self.into
            && self.rest.is_empty()
        {
            let space = buffer.space();
            let length = bytes.len().min(space.len()).min(*limit);
            space[..length].copy_from_slice(&bytes[..length]);
            buffer.end += length;
            *limit -= length;
            self.taken += length;
            bytes = &bytes[length..];
        }
        self.rest.extend_from_slice(bytes);
    }
}

/// What differs between the sides.
trait Side: Sized {
    fn process<'c, 'i>(
        connection: &'c mut UnbufferedConnectionCommon<Self>,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self>;

    /// Takes what came before the handshake was complete (0-RTT).
    fn take_early(state: ConnectionState<'_, '_, Self>, sink: &mut Sink<'_>);
}

impl Side for ServerConnectionData {
    fn process<'c, 'i>(
        connection: &'c mut UnbufferedConnectionCommon<Self>,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self> {
        connection.process_tls_records(incoming)
    }

    fn take_early(state: ConnectionState<'_, '_, Self>, sink: &mut Sink<'_>) {
        if let ConnectionState::ReadEarlyData(mut early) = state {
            while let Some(Ok(record)) = early.next_record() {
                sink.push(record.payload);
            }
        }
    }
}

impl Side for ClientConnectionData {
    fn process<'c, 'i>(
        connection: &'c mut UnbufferedConnectionCommon<Self>,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self> {
        connection.process_tls_records(incoming)
    }

    fn take_early(_: ConnectionState<'_, '_, Self>, _: &mut Sink<'_>) {}
}

/// What is to be done when nothing has to be read or sent first.
enum Work<'a> {
    /// Nothing: this was to find out what has come.
    Read,
    /// Encrypt this.
    Encrypt(&'a [u8]),
    /// Say that nothing more will follow.
    Close,
}

/// Processes what has come until there is plaintext, or until the work is done.
fn advance<S: Side>(
    connection: &mut UnbufferedConnectionCommon<S>,
    incoming: &mut Option<Buffer>,
    outgoing: &mut Option<Buffer>,
    sink: &mut Sink<'_>,
    peer_closed: &mut bool,
    work: Work<'_>,
) -> Result<Stop, Error> {
    loop {
        let bytes = incoming.as_mut().map_or(Default::default(), Buffer::unread_mut);
        let UnbufferedStatus { mut discard, state, .. } = S::process(connection, bytes);
        let mut stop = None;
        let result = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    sink.push(record.payload);
                }
                // A writer goes on: what it did not ask for is kept.
                stop = matches!(work, Work::Read).then_some(Stop::Plain);
                Ok(())
            }
            Ok(early @ ConnectionState::ReadEarlyData(_)) => {
                S::take_early(early, sink);
                Ok(())
            }
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                let out = outgoing.get_or_insert_with(Buffer::take);
                match message.encode(out.space()) {
                    Ok(length) => out.end += length,
                    Err(EncodeError::InsufficientSize(_)) => stop = Some(Stop::Full),
                    Err(EncodeError::AlreadyEncoded) => {}
                }
                Ok(())
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                stop = outgoing.as_mut().is_some_and(|out| out.space().len() < MESSAGE).then_some(Stop::Full);
                Ok(())
            }
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                stop = Some(Stop::Incomplete);
                let encrypted = match work {
                    Work::Read => Ok(0),
                    Work::Encrypt(data) => traffic.encrypt(data, outgoing.get_or_insert_with(Buffer::take).space()),
                    Work::Close => traffic.queue_close_notify(outgoing.get_or_insert_with(Buffer::take).space()),
                };
                match encrypted {
                    Ok(length) => {
                        if let Some(out) = outgoing {
                            out.end += length;
                        }
                        Ok(())
                    }
                    Err(EncryptError::InsufficientSize(_)) => {
                        stop = Some(Stop::Full);
                        Ok(())
                    }
                    Err(EncryptError::EncryptExhausted) => Err(Error::EncryptError),
                }
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                *peer_closed = true;
                stop = matches!(work, Work::Read).then_some(Stop::Closed);
                Ok(())
            }
            Ok(ConnectionState::BlockedHandshake) => {
                stop = Some(Stop::Incomplete);
                Ok(())
            }
            Ok(_) => Err(Error::General("an unknown state of the connection".into())),
            Err(error) => Err(error),
        };
        if let Some(buffer) = incoming {
            buffer.start += discard;
            if buffer.is_empty() {
                *incoming = None;
            }
        }
        result?;
        if let Some(stop) = stop {
            return Ok(stop);
        }
    }
}

/// Takes the alert for the peer of a connection that has failed. Nothing else may be asked of it: it still refers to messages
/// whose bytes are gone.
fn encode_alert<S: Side>(connection: &mut UnbufferedConnectionCommon<S>, outgoing: &mut Option<Buffer>) {
    let UnbufferedStatus { state, .. } = S::process(connection, &mut []);
    if let Ok(ConnectionState::EncodeTlsData(mut message)) = state {
        let out = outgoing.get_or_insert_with(Buffer::take);
        // Without room the peer does not learn why.
        out.end += message.encode(out.space()).unwrap_or(0);
    }
}

/// The first bytes of some slices.
fn join(slices: &[IoSlice<'_>], length: usize) -> Vec<u8> {
    let mut joined = Vec::with_capacity(length);
    for slice in slices {
        joined.extend_from_slice(&slice[..slice.len().min(length - joined.len())]);
    }
    joined
}

impl Tls {
    /// The server's side. These bytes have come already.
    pub fn server(config: Arc<ServerConfig>, received: Option<Buffer>) -> io::Result<Tls> {
        let connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Tls::new(Role::Server(connection), received))
    }

    /// The client's side.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Tls> {
        let connection = UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Tls::new(Role::Client(connection), None))
    }

    fn new(role: Role, incoming: Option<Buffer>) -> Tls {
        Tls {
            role,
            incoming: incoming.filter(|buffer| !buffer.is_empty()),
            plain: Vec::new(),
            plain_read: 0,
            outgoing: None,
            accepted: 0,
            peer_closed: false,
            closed: false,
            failed: false,
        }
    }

    fn state(&self) -> &CommonState {
        match &self.role {
            Role::Server(connection) => connection,
            Role::Client(connection) => connection,
        }
    }

    /// Whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    /// What was agreed on, once the handshake is complete.
    pub fn secured(&self) -> Option<Secured> {
        let state = self.state();
        Some(Secured {
            version: state.protocol_version()?,
            suite: state.negotiated_cipher_suite()?,
            group: state.negotiated_key_exchange_group().map(|group| group.name()),
            alpn: state.alpn_protocol().map(Into::into),
            resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            certificates: state.peer_certificates().unwrap_or_default().to_vec(),
        })
    }

    fn advance(&mut self, into: Option<(&mut Buffer, usize)>, work: Work<'_>) -> io::Result<(Stop, usize)> {
        if self.failed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let mut sink = Sink { into, taken: 0, rest: &mut self.plain };
        let (incoming, outgoing, closed) = (&mut self.incoming, &mut self.outgoing, &mut self.peer_closed);
        let stop = match &mut self.role {
            Role::Server(connection) => advance(connection, incoming, outgoing, &mut sink, closed, work),
            Role::Client(connection) => advance(connection, incoming, outgoing, &mut sink, closed, work),
        };
        match stop {
            Ok(stop) => Ok((stop, sink.taken)),
            Err(error) => {
                self.incoming = None;
                match &mut self.role {
                    Role::Server(connection) => encode_alert(connection, &mut self.outgoing),
                    Role::Client(connection) => encode_alert(connection, &mut self.outgoing),
                }
                self.failed = true;
                Err(io::Error::new(io::ErrorKind::InvalidData, Failure(error)))
            }
        }
    }

    /// Goes on with the handshake as far as what has come allows.
    pub fn handshake(&mut self) -> io::Result<Stop> {
        self.advance(None, Work::Read).map(|(stop, _)| stop)
    }

    /// Whether plaintext or the end can be had without reading from the socket; processes what has come.
    pub fn has_plain(&mut self) -> io::Result<bool> {
        if self.plain.is_empty() && self.incoming.is_some() {
            self.handshake()?;
        }
        Ok(!self.plain.is_empty() || self.peer_closed)
    }

    /// Puts plaintext that has come into a buffer; none if more has to be read from the socket, 0 at the end.
    pub fn take(&mut self, buffer: &mut Buffer, limit: usize) -> io::Result<Option<usize>> {
        let left = &self.plain[self.plain_read..];
        if !left.is_empty() {
            let space = buffer.space();
            let length = left.len().min(space.len()).min(limit);
            space[..length].copy_from_slice(&left[..length]);
            buffer.end += length;
            self.plain_read += length;
            if self.plain_read == self.plain.len() {
                (self.plain, self.plain_read) = (Vec::new(), 0);
            }
            return Ok(Some(length));
        }
        loop {
            match self.advance(Some((buffer, limit)), Work::Read)? {
                (Stop::Plain, 0) => {}
                (Stop::Plain, taken) => return Ok(Some(taken)),
                (Stop::Closed, _) => return Ok(Some(0)),
                (Stop::Incomplete | Stop::Full, _) if self.peer_closed => return Ok(Some(0)),
                (Stop::Incomplete | Stop::Full, _) => return Ok(None),
            }
        }
    }

    /// Where the next bytes of the socket are read to.
    pub fn incoming(&mut self) -> &mut Buffer {
        let buffer = self.incoming.get_or_insert_with(Buffer::take);
        if buffer.start > 0 && buffer.space().len() < MESSAGE {
            buffer.shift(0);
        }
        buffer
    }

    /// After a read: gives the buffer back if nothing is in it.
    pub fn settle_incoming(&mut self) {
        if self.incoming.as_ref().is_some_and(Buffer::is_empty) {
            self.incoming = None;
        }
    }

    /// Encrypts what there is room for. Nothing more is taken before that was written. With `last` nothing follows.
    pub fn encrypt(&mut self, slices: &[IoSlice<'_>], last: bool) -> io::Result<()> {
        if self.accepted > 0 {
            return Ok(());
        }
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        // What goes out by itself (a new session, an answer to a change of keys) may be in the buffer already.
        let free = self.outgoing.as_mut().map_or(buffer::CAPACITY, |out| out.space().len());
        if free < ENCRYPTED {
            return Ok(());
        }
        let batch = BATCH.min(total);
        let joined;
        let bytes = match slices {
            [first, ..] if first.len() >= batch => &first[..batch],
            _ => {
                // One record for a head and the beginning of its body costs less than two.
                joined = join(slices, batch);
                joined.as_slice()
            }
        };
        let (stop, _) = self.advance(None, Work::Encrypt(bytes))?;
        if stop == Stop::Full {
            return Ok(());
        }
        self.accepted = batch;
        if last && self.accepted == total {
            self.close()?;
        }
        Ok(())
    }

    /// How many of the writer's bytes have been written, once all has been.
    pub fn written(&mut self) -> usize {
        std::mem::take(&mut self.accepted)
    }

    /// Adds the message that nothing will follow.
    pub fn close(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.closed, true) && !self.is_handshaking() {
            self.advance(None, Work::Close)?;
        }
        Ok(())
    }

    /// What is to be written.
    pub fn outgoing(&self) -> Option<&[u8]> {
        self.outgoing.as_ref().map(Buffer::unread)
    }

    /// So much of it was written.
    pub fn wrote(&mut self, length: usize) {
        if let Some(out) = &mut self.outgoing {
            out.start += length;
            if out.is_empty() {
                self.outgoing = None;
            }
        }
    }
}

/// Why TLS has failed.
#[derive(Debug)]
pub struct Failure(Error);

impl Failure {
    /// What rustls says.
    pub fn error(&self) -> &Error {
        &self.0
    }

    /// The failure behind an error of a transport, if it is one of TLS.
    pub fn of(error: &io::Error) -> Option<&Failure> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failure {}
