//! Encrypted transports over real sockets.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use balanza_net::buffer::Buffer;
use balanza_net::event_loop;
use balanza_net::tls::Failure;
use balanza_net::transport::Transport;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Configurations of two sides that trust each other.
fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_string()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let server = ServerConfig::builder().with_no_client_auth();
    let mut server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    server.alpn_protocols = vec![b"x".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"y".to_vec(), b"x".to_vec()];
    (Arc::new(server), Arc::new(client))
}

fn name() -> ServerName<'static> {
    ServerName::try_from("a.test").unwrap()
}

/// Two connected sockets; neither takes much at a time.
fn sockets() -> (UnixStream, UnixStream) {
    let (one, two) = UnixStream::pair().unwrap();
    for socket in [&one, &two] {
        socket.set_nonblocking(true).unwrap();
    }
    (one, two)
}

fn transports() -> (Rc<Transport>, Rc<Transport>) {
    let (one, two) = sockets();
    (Rc::new(Transport::new(OwnedFd::from(one), true)), Rc::new(Transport::new(OwnedFd::from(two), true)))
}

/// Two sides after their handshake.
async fn shaken() -> (Rc<Transport>, Rc<Transport>) {
    let (server_config, client_config) = configs();
    let (server, client) = transports();
    server.begin_tls_server(server_config, None).unwrap();
    client.begin_tls_client(client_config, name()).unwrap();
    both(handshake(&server), handshake(&client)).await;
    (server, client)
}

async fn handshake(transport: &Transport) {
    poll_fn(|cx| transport.poll_handshake(cx)).await.unwrap();
}

/// Waits for both.
async fn both(one: impl Future<Output = ()>, two: impl Future<Output = ()>) {
    let (mut one, mut two) = (pin!(one), pin!(two));
    let mut done = (false, false);
    poll_fn(|cx| {
        done.0 = done.0 || one.as_mut().poll(cx).is_ready();
        done.1 = done.1 || two.as_mut().poll(cx).is_ready();
        if done == (true, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn send(transport: &Transport, slices: &[&[u8]], last: bool) {
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut sent = 0;
    while sent < total {
        let mut skip = sent;
        let mut left = Vec::new();
        for slice in slices {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            if skipped < slice.len() {
                left.push(IoSlice::new(&slice[skipped..]));
            }
        }
        sent += poll_fn(|cx| transport.poll_send(cx, &left, last)).await.unwrap();
    }
}

/// Reads so many bytes, in pieces of at most `limit`.
async fn receive(transport: &Transport, length: usize, limit: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        let mut buffer = Buffer::take();
        let read = poll_fn(|cx| transport.poll_recv(cx, &mut buffer, limit)).await.unwrap();
        assert!(read > 0 && read <= limit && read == buffer.unread().len(), "{read} of {limit}");
        all.extend_from_slice(buffer.unread());
    }
    all
}

async fn read(transport: &Transport) -> io::Result<usize> {
    let mut buffer = None;
    poll_fn(|cx| transport.poll_recv_buffer(cx, &mut buffer)).await
}

fn run(test: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
    let done = Rc::new(std::cell::Cell::new(false));
    let set = Rc::clone(&done);
    let test = async move {
        test.await;
        set.set(true);
    };
    runtime.block_on(event_loop::run(test)).unwrap();
    assert!(done.get(), "the test ended early");
}

#[test]
fn bytes_arrive_in_order_whatever_their_number() {
    run(async {
        let (server, client) = shaken().await;
        let secured = server.secured().unwrap();
        assert_eq!(secured.alpn.as_deref(), Some(b"x".as_slice()));
        assert!(!secured.resumed && secured.certificates.is_empty());
        assert_eq!(client.secured().unwrap().certificates.len(), 1);
        for (length, limit) in
            [(1, 1), (200, 7), (16_384, 65_536), (16_385, 1000), (49_152, 65_536), (1_000_000, 20_000)]
        {
            let bytes: Vec<u8> = (0..length).map(|number: usize| (number * 7 + number / 251) as u8).collect();
            for cut in [0, length / 3] {
                let (head, body) = bytes.split_at(cut);
                let check = async {
                    let got = receive(&server, length, limit).await;
                    assert!(got == bytes, "{length} bytes, {limit} at a time");
                    send(&server, &[&got], false).await;
                };
                let ask = async {
                    send(&client, &[head, body], false).await;
                    assert!(receive(&client, length, limit).await == bytes);
                };
                both(check, ask).await;
            }
        }
    });
}

#[test]
fn a_file_is_sent_encrypted() {
    run(async {
        let (server, client) = shaken().await;
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..300_000).map(|number| (number / 3) as u8).collect();
        file.write_all(&bytes).unwrap();
        let serve = async {
            let mut sent = 10;
            while sent < bytes.len() {
                sent += poll_fn(|cx| server.poll_send_file(cx, &file, sent as u64, bytes.len())).await.unwrap();
            }
            assert_eq!(poll_fn(|cx| server.poll_send_file(cx, &file, sent as u64, 10)).await.unwrap(), 0);
        };
        both(serve, async { assert!(receive(&client, bytes.len() - 10, 65_536).await == bytes[10..]) }).await;
    });
}

#[test]
fn an_end_is_told_from_a_break() {
    run(async {
        for (last, reset) in [(false, false), (true, false), (false, true)] {
            let (server, client) = shaken().await;
            // What comes after a handshake by itself is not for the reader.
            assert!(client.watch().is_ok() && server.watch().is_ok());
            send(&server, &[b"bytes"], last).await;
            assert_eq!(receive(&client, 5, 100).await, b"bytes");
            if reset {
                server.reset_on_close();
            }
            drop(server);
            let end = read(&client).await;
            match reset {
                false => assert_eq!(end.unwrap(), 0),
                true => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
            }
        }
    });
}

#[test]
fn tickets_are_no_news_for_an_idle_connection() {
    run(async {
        let (server, client) = shaken().await;
        client.watch().unwrap();
        // The server's tickets are there, and nobody has read them.
        poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
        assert!(!client.has_news() && client.is_emptied());
        send(&server, &[b"bytes"], false).await;
        poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
        assert!(client.has_news() && !client.is_emptied());
        assert_eq!(client.try_recv_buffer().unwrap().unread(), b"bytes");
        assert!(!client.has_news() && client.try_recv_buffer().is_none());
        server.shutdown_write();
        poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
        assert!(client.has_news());
        let late = poll_fn(|cx| server.poll_send(cx, &[IoSlice::new(b"late")], false)).await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        send(&client, &[b"still"], false).await;
        assert_eq!(receive(&server, 5, 100).await, b"still", "one side may end before the other");
    });
}

#[test]
fn garbage_ends_a_handshake_with_an_alert() {
    run(async {
        let (socket, mut peer) = sockets();
        let server = Transport::new(OwnedFd::from(socket), true);
        let begun = Buffer::holding(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00");
        server.begin_tls_server(configs().0, Some(begun)).unwrap();
        let error = poll_fn(|cx| server.poll_handshake(cx)).await.unwrap_err();
        assert!(Failure::of(&error).is_some(), "{error}");
        let mut alert = [0; 7];
        peer.read_exact(&mut alert).unwrap();
        assert_eq!((alert[0], alert[5]), (21, 2), "a fatal alert");
        assert!(poll_fn(|cx| server.poll_handshake(cx)).await.is_err(), "it stays failed");
        peer.write_all(b"x").unwrap();
        assert!(read(&server).await.is_err());
    });
}
