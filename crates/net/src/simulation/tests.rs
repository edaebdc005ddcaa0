//! What the simulated network promises.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Seek, Write};
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::buffer::Buffer;
use crate::clock;
use crate::half::Half;
use crate::pipe::Pipe;
use crate::timer::Timer;
use crate::transport::{ConnectOptions, Destination, Transport, connect, open_connections};

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// Runs a test under several seeds, each on a thread of its own, as fresh as a worker's.
fn with_seeds<F: Future<Output = ()> + 'static>(test: fn(u64) -> F) {
    for seed in 0..50 {
        let thread = std::thread::spawn(move || {
            let ended = Rc::new(Cell::new(false));
            let end = Rc::clone(&ended);
            run(seed, Conditions::default(), async move {
                test(seed).await;
                assert_eq!((open_connections(), open_ends()), (0, 0), "connections that are left, seed {seed}");
                end.set(true);
            });
            // The event loop catches panics.
            assert!(ended.get(), "seed {seed}");
        });
        thread.join().unwrap();
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

async fn send_all(transport: &Transport, bytes: &[u8]) -> std::io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += poll_fn(|cx| transport.poll_send(cx, &[IoSlice::new(&bytes[sent..])], false)).await?;
    }
    Ok(())
}

async fn recv_all(transport: &Transport) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut buffer = Buffer::take();
        if poll_fn(|cx| transport.poll_recv(cx, &mut buffer, usize::MAX)).await? == 0 {
            return Ok(all);
        }
        all.extend_from_slice(buffer.unread());
    }
}

async fn read_all(peer: &Peer) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 3000];
    loop {
        match peer.read(&mut buffer).await? {
            0 => return Ok(all),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

async fn write_all(peer: &Peer, bytes: &[u8]) -> std::io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        written += peer.write(&bytes[written..]).await?;
    }
    Ok(())
}

#[test]
fn bytes_arrive_in_order_in_both_directions_and_then_the_end() {
    with_seeds(|_| async {
        let listener = Listener::new(address(1), || Reception::Accept);
        event_loop::spawn(async move {
            let peer = listener.accept().await;
            assert_eq!(read_all(&peer).await.unwrap(), bytes(100_000));
            write_all(&peer, &bytes(50_000)).await.unwrap();
        });
        let transport = connect(&Destination::Inet(address(1)), &ConnectOptions::default()).unwrap();
        send_all(&transport, &bytes(100_000)).await.unwrap();
        transport.shutdown_write();
        assert_eq!(recv_all(&transport).await.unwrap(), bytes(50_000));
        drop(transport);
    });
}

#[test]
fn a_connection_may_be_refused_and_may_be_never_answered() {
    with_seeds(|_| async {
        let _refusing = Listener::new(address(2), || Reception::Refuse);
        let failed = match connect(&Destination::Inet(address(2)), &ConnectOptions::default()) {
            Ok(transport) => send_all(&transport, b"hello").await.unwrap_err(),
            Err(error) => error.into(),
        };
        assert_eq!(failed.kind(), ErrorKind::ConnectionRefused);
        let _silent = Listener::new(address(3), || Reception::Silence);
        let transport = connect(&Destination::Inet(address(3)), &ConnectOptions::default()).unwrap();
        let begun = clock::now();
        let sent = tokio::time::timeout(Duration::from_secs(60), send_all(&transport, b"hello")).await;
        assert!(sent.is_err(), "no server takes it");
        assert_eq!(clock::now() - begun, 60_000_000_000, "no time but the virtual");
    });
}

#[test]
fn a_reset_breaks_both_directions_and_is_told_once() {
    with_seeds(|_| async {
        let (peer, transport) = Peer::dial(address(9), address(4));
        transport.watch().unwrap();
        peer.reset();
        poll_fn(|cx| transport.poll_peer_closed(cx)).await;
        assert!(transport.has_news());
        assert_eq!(recv_all(&transport).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(recv_all(&transport).await.unwrap(), b"");
        assert_eq!(send_all(&transport, b"hello").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_close_with_unread_bytes_and_bytes_after_a_close_reset() {
    with_seeds(|seed| async move {
        let (peer, transport) = Peer::dial(address(9), address(4));
        write_all(&peer, b"unread").await.unwrap();
        if seed % 2 == 0 {
            // Enough for them to arrive before the close; otherwise they come after it.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(transport);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(peer.is_broken());
    });
}

#[test]
fn a_full_connection_blocks_its_writer_until_it_is_read() {
    with_seeds(|_| async {
        let (peer, transport) = Peer::dial(address(9), address(4));
        let sent = Rc::new(Cell::new(false));
        let done = Rc::clone(&sent);
        event_loop::spawn(async move {
            send_all(&transport, &bytes(1_000_000)).await.unwrap();
            done.set(true);
        });
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(!sent.get());
        assert_eq!(read_all(&peer).await.unwrap(), bytes(1_000_000));
    });
}

#[test]
fn files_and_pipes_reach_the_peer() {
    with_seeds(|_| async {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes(30_000)).unwrap();
        file.rewind().unwrap();
        let (source, from) = Peer::dial(address(9), address(4));
        let (sink, to) = Peer::dial(address(9), address(4));
        event_loop::spawn(async move { write_all(&source, &bytes(90_000)).await.unwrap() });
        event_loop::spawn(async move {
            let mut offset = 0;
            while offset < 30_000 {
                offset += poll_fn(|cx| to.poll_send_file(cx, &file, offset as u64, 1 << 20)).await.unwrap();
            }
            let mut pipe = Pipe::take().unwrap();
            while poll_fn(|cx| from.poll_splice_from(cx, &mut pipe, 70_000)).await.unwrap() > 0 {
                while pipe.filled() > 0 {
                    poll_fn(|cx| to.poll_splice_to(cx, &mut pipe, true)).await.unwrap();
                }
            }
        });
        assert_eq!(read_all(&sink).await.unwrap(), [bytes(30_000), bytes(90_000)].concat());
    });
}

#[test]
fn an_event_is_known_when_the_loop_has_told_it_and_not_before() {
    with_seeds(|_| async {
        let (peer, transport) = Peer::dial(address(9), address(4));
        write_all(&peer, b"a").await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!transport.has_news(), "it is not watched");
        assert!(!transport.is_emptied());
        let mut buffer = Buffer::take();
        assert!(poll_fn(|cx| transport.poll_recv(cx, &mut buffer, 1)).await.is_ok());
        assert!(transport.is_emptied());
        transport.watch().unwrap();
        write_all(&peer, b"b").await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(transport.has_news());
    });
}

#[test]
fn both_directions_of_a_tunnel_end() {
    with_seeds(|_| async {
        let (client, left) = Peer::dial(address(9), address(4));
        let (server, right) = Peer::dial(address(9), address(5));
        event_loop::spawn(async move {
            let mut there = Half::new(None, 1000, true);
            let mut back = Half::new(None, 1000, true);
            poll_fn(|cx| {
                there.poll(cx, &left, &right).unwrap();
                back.poll(cx, &right, &left).unwrap();
                if there.closed && back.closed { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        write_all(&client, b"there").await.unwrap();
        client.shutdown_write();
        assert_eq!(read_all(&server).await.unwrap(), b"there");
        write_all(&server, b"and back").await.unwrap();
        drop(server);
        assert_eq!(read_all(&client).await.unwrap(), b"and back");
    });
}

/// What is longer than a read goes through a pipe; the end may come at any place.
#[test]
fn all_that_is_relayed_arrives_in_its_order() {
    with_seeds(|seed| async move {
        let (client, left) = Peer::dial(address(9), address(4));
        let (server, right) = Peer::dial(address(9), address(5));
        event_loop::spawn(async move {
            let mut there = Half::new(None, 100, true);
            poll_fn(|cx| {
                there.poll(cx, &left, &right).unwrap();
                if there.closed { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!(there.received, there.sent);
        });
        let sent: Vec<u8> = (0..20_000 + seed as u32 % 300).map(|at| (at % 251) as u8).collect();
        let all = sent.clone();
        event_loop::spawn(async move {
            write_all(&client, &all).await.unwrap();
            client.shutdown_write();
        });
        assert!(read_all(&server).await.unwrap() == sent, "seed {seed}");
    });
}

#[test]
fn deadlines_pass_in_their_order_without_waiting() {
    let begun = std::time::Instant::now();
    with_seeds(|_| async {
        let begun = clock::now();
        let passed = Rc::new(RefCell::new(Vec::new()));
        for seconds in [3000, 1000, 2000] {
            let passed = Rc::clone(&passed);
            event_loop::spawn(async move {
                Timer::default().sleep(Duration::from_secs(seconds)).await;
                // The task has not asked for the time: the event loop did.
                passed.borrow_mut().push((seconds, clock::recent()));
            });
        }
        tokio::time::sleep(Duration::from_secs(4000)).await;
        let passed = passed.borrow();
        let seconds: Vec<u64> = passed.iter().map(|(seconds, _)| *seconds).collect();
        assert_eq!(seconds, [1000, 2000, 3000]);
        for (seconds, at) in &*passed {
            assert_eq!((at - begun) / 1_000_000_000, *seconds);
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(600), "half a day for each of fifty seeds");
}

/// The runtime has tasks of its own, which are polled while the loop sleeps.
#[test]
fn a_new_timer_ends_the_loops_sleep() {
    with_seeds(|_| async {
        let begun = clock::now();
        let passed = Rc::new(RefCell::new(Vec::new()));
        for seconds in [3, 2] {
            let passed = Rc::clone(&passed);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Timer::default().sleep(Duration::from_secs(seconds)).await;
                passed.borrow_mut().push((clock::now() - begun) / 1_000_000_000);
            });
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Not when another timer ends the sleep, after a minute.
        let passed = passed.borrow();
        assert!(passed.len() == 2 && passed.iter().all(|seconds| *seconds <= 4), "{passed:?}");
    });
}

#[test]
fn a_panic_ends_the_run() {
    let ended = std::thread::spawn(|| run(1, Conditions::default(), async { panic!("expected by the test") }).events);
    assert_eq!(ended.join().unwrap(), 0);
}

/// Some connections that do much at the same time.
async fn traffic(seed: u64) {
    let mut random = Random::new(seed);
    let listener = Listener::new(address(1), move || match random.below(5) {
        0 => Reception::Refuse,
        _ => Reception::Accept,
    });
    event_loop::spawn(async move {
        loop {
            let peer = listener.accept().await;
            event_loop::spawn(async move {
                while let Ok(got) = read_all(&peer).await
                    && !got.is_empty()
                {
                    let _ = write_all(&peer, &got).await;
                }
            });
        }
    });
    for length in 0..20 {
        event_loop::spawn(async move {
            let Ok(transport) = connect(&Destination::Inet(address(1)), &ConnectOptions::default()) else { return };
            if send_all(&transport, &bytes(length * 1000)).await.is_ok() {
                transport.shutdown_write();
                let _ = recv_all(&transport).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
}

#[test]
fn a_seed_is_a_run() {
    let trace = |seed: u64| {
        let conditions = Conditions { keeps_trace: true, ..Conditions::default() };
        std::thread::spawn(move || run(seed, conditions, traffic(seed))).join().unwrap()
    };
    let (first, second, other) = (trace(1), trace(1), trace(2));
    assert!(first.lines.len() > 100);
    assert_eq!(first, second);
    assert_ne!(first.digest, other.digest);
}
