//! Connections: which are accepted, and since when their requests count as there.
//!
//! A target with a limit of connections leaves the others in the kernel's listen queue. Between the end of one request
//! and the next one read there are an answer to write, a connection to close and another to accept; on a busy machine
//! that takes a noticeable part of a millisecond, in which a server that works in virtual time would stand still. So the
//! time is not lost: a connection that was in the queue, with its request, when a place became free counts as come at
//! the moment at which the work before it ended. It is known to have been there because accepting it and a look at its
//! first byte succeeded at once, without waiting for either.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};

use super::answer::Server;

/// The place of one connection among those that a target accepts at once, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    places: UnboundedSender<Free>,
    times: Mutex<Times>,
}

/// A free place, and when the last work in it ended, if its connection was closed because of that.
type Free = Option<Instant>;

#[derive(Debug)]
struct Times {
    /// When the first request counts as arrived, if that was before it was read.
    came: Option<Instant>,
    /// See [`Free`].
    over: Free,
}

impl Admission {
    /// When the first request arrived, if that was before it was read; once.
    pub(super) fn came(&self) -> Option<Instant> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).came.take()
    }

    /// The connection is closed after an answer that was ready at this time.
    pub(super) fn over(&self, at: Option<Instant>) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).over = at;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // Fails when the target ends.
        let _ = self.places.send(self.times.get_mut().unwrap_or_else(PoisonError::into_inner).over);
    }
}

/// Accepts until the server drains, each connection into a task of its own, at most `limit` at once; ends with the last
/// connection.
pub(super) async fn accept(
    listener: std::net::TcpListener,
    server: Arc<Server>,
    limit: Option<usize>,
) -> io::Result<()> {
    let listener = Listener::new(listener)?;
    let mut places = limit.map(Places::new);
    // Every connection has a sender; when all are gone, none is left.
    let (open, mut last) = channel::<Infallible>(1);
    let next = async |places: &mut Option<Places>| {
        let free = match places {
            Some(places) => places.take().await,
            None => None,
        };
        listener.accept(free).await
    };
    loop {
        let accepted = tokio::select! {
            accepted = next(&mut places) => accepted,
            () = server.drains() => break,
        };
        match accepted {
            Ok((stream, came)) => {
                let admission = places.as_ref().map(|places| places.admit(came));
                tokio::spawn(serve(stream, Arc::clone(&server), admission, open.clone()));
            }
            // Out of descriptors, or a connection that was gone before it was accepted: no reason to spin or to end.
            Err(_) => {
                places.iter().for_each(Places::put_back);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    drop((listener, open));
    let _ = last.recv().await;
    Ok(())
}

/// The places that a limit leaves.
struct Places {
    sender: UnboundedSender<Free>,
    receiver: UnboundedReceiver<Free>,
    /// Places that nobody had yet.
    fresh: usize,
}

impl Places {
    fn new(limit: usize) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver, fresh: limit }
    }

    async fn take(&mut self) -> Free {
        if self.fresh > 0 {
            self.fresh -= 1;
            return None;
        }
        // There is always a sender, this one.
        self.receiver.recv().await.flatten()
    }

    fn put_back(&self) {
        let _ = self.sender.send(None);
    }

    fn admit(&self, came: Option<Instant>) -> Arc<Admission> {
        Arc::new(Admission { places: self.sender.clone(), times: Mutex::new(Times { came, over: None }) })
    }
}

/// A listening socket, to look at and to wait for.
struct Listener {
    socket: std::net::TcpListener,
    waiting: TcpListener,
}

impl Listener {
    fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { waiting: TcpListener::from_std(socket.try_clone()?)?, socket })
    }

    /// The next connection, and `free` if it was there already with its request.
    async fn accept(&self, free: Free) -> io::Result<(tokio::net::TcpStream, Free)> {
        // A flood of connections must not keep the others of this thread from their turn.
        tokio::task::consume_budget().await;
        let (stream, free) = match self.socket.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (self.waiting.accept().await?.0, None),
            Err(error) => return Err(error),
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                let free = free.filter(|_| has_data(&stream));
                (tokio::net::TcpStream::from_std(stream)?, free)
            }
        };
        // Fails when the client has left already, which reading will tell.
        let _ = stream.set_nodelay(true);
        Ok((stream, free))
    }
}

fn has_data(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
}

/// One connection until it closes; how it ended is the client's affair.
async fn serve(
    stream: tokio::net::TcpStream,
    server: Arc<Server>,
    admission: Option<Arc<Admission>>,
    _open: Sender<Infallible>,
) {
    server.connected();
    let answering = Arc::clone(&server);
    let service = service_fn(move |request| Arc::clone(&answering).answer(request, admission.clone()));
    let connection = http1::Builder::new()
        .keep_alive(server.keeps_alive())
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = server.drains() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers questions about the target and changes it, at a socket of its own.
pub(super) async fn control(listener: std::net::TcpListener, server: Arc<Server>) -> io::Result<()> {
    let listener = Listener::new(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept(None).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let server = Arc::clone(&server);
        let service = service_fn(move |request| std::future::ready(Ok::<_, io::Error>(server.control(&request))));
        tokio::spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
