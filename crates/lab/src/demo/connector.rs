//! Connections of the demo's load: plain, or by TLS, whose handshakes are counted.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::load::WINDOW;

/// The clients' TLS. Clones share the sessions and what is counted.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    handshakes: Arc<Mutex<Handshakes>>,
}

/// What was negotiated last, and the handshakes of the last seconds: when, and whether they resumed a session.
#[derive(Default)]
struct Handshakes {
    negotiated: String,
    recent: VecDeque<(Instant, bool)>,
}

impl Tls {
    /// TLS with a server that has this certificate, in PEM, and with no other.
    pub(super) fn new(certificate: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { connector: Arc::new(config).into(), handshakes: Arc::default() })
    }

    /// What is negotiated, and how often, over a load that has run for `elapsed`. None before the first handshake.
    pub(super) fn summary(&self, elapsed: Duration) -> Option<String> {
        let now = Instant::now();
        let mut handshakes = self.handshakes();
        while handshakes.recent.front().is_some_and(|(at, _)| now - *at > WINDOW) {
            handshakes.recent.pop_front();
        }
        if handshakes.negotiated.is_empty() {
            return None;
        }
        let count = handshakes.recent.len() as f64;
        let resumed = handshakes.recent.iter().filter(|(_, resumed)| *resumed).count() as f64;
        let rate = count / elapsed.min(WINDOW).as_secs_f64().max(0.1);
        let share = 100.0 * resumed / count.max(1.0);
        Some(format!("{}; {rate:.1} handshakes/s, {share:.0}% resumed", handshakes.negotiated))
    }

    fn note(&self, connection: &ClientConnection) {
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let mut handshakes = self.handshakes();
        handshakes.negotiated = negotiated(connection);
        handshakes.recent.push_back((Instant::now(), resumed));
    }

    fn handshakes(&self) -> MutexGuard<'_, Handshakes> {
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Protocols, suite and group, as `$server_protocol`, `$ssl_protocol`, `$ssl_cipher` and `$ssl_curve` have them.
fn negotiated(connection: &ClientConnection) -> String {
    let http = if is_http2(connection) { "HTTP/2" } else { "HTTP/1.1" };
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
    let suite = suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1);
    let group = connection.negotiated_key_exchange_group().map(|group| format!(", {:?}", group.name()));
    format!("{http} over {version}, {suite}{}", group.unwrap_or_default())
}

fn is_http2(connection: &ClientConnection) -> bool {
    connection.alpn_protocol() == Some(b"h2")
}

/// Opens the connections of one client.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<Tls>,
}

impl Connector {
    /// Connections of the client of this index, which come from an address of its own where the system has a whole
    /// loopback network.
    pub(super) fn new(index: u8, tls: Option<Tls>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        if cfg!(target_os = "linux") {
            tcp.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 1 + index, 1))));
        }
        Self { tcp, tls }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let name = ServerName::try_from(uri.host().unwrap_or_default().to_owned());
        let tcp = self.tcp.call(uri);
        let tls = self.tls.clone();
        Box::pin(async move {
            let tcp = tcp.await?.into_inner();
            let Some(tls) = tls else { return Ok(Stream::new(tcp, false)) };
            let stream = tls.connector.connect(name?, tcp).await?;
            let (_, connection) = stream.get_ref();
            tls.note(connection);
            let is_http2 = is_http2(connection);
            Ok(Stream::new(stream, is_http2))
        })
    }
}

trait Bytes: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

/// A connection of either kind.
pub(super) struct Stream {
    bytes: TokioIo<Pin<Box<dyn Bytes>>>,
    is_http2: bool,
}

impl Stream {
    fn new(bytes: impl Bytes + 'static, is_http2: bool) -> Self {
        Self { bytes: TokioIo::new(Box::pin(bytes)), is_http2 }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        if self.is_http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
