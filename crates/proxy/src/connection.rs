//! A client's connection: waits for requests, serves them, and closes as the last response announced.

use std::fs::File;
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::event_loop;
use balanza_net::listening::Peer;
use balanza_net::memory::{self, Pressure};
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;

use crate::body::BodyError;
use crate::exchange::Rate;
use crate::phases;
use crate::site::Listener;
use crate::worker::{Arrived, ClientEntry, Worker};

/// How long a closing connection is read from, so that the client gets the last response before a reset:
/// NGINX's `lingering_time` and `lingering_timeout`.
const LINGER: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

/// An incomplete head of at least so many bytes is refused when memory is short.
pub const LARGE_HEAD: usize = 8 * 1024;

/// A client's connection.
pub struct Client {
    /// Its worker.
    pub worker: Rc<Worker>,
    /// The socket.
    pub socket: Transport,
    /// The client's address.
    pub peer: Peer,
    /// Its listening socket, in the newest configuration seen.
    pub listener: Rc<Listener>,
    /// `$connection`.
    pub serial: u64,
    /// `$connection_requests`.
    pub requests: u64,
    /// When it was accepted.
    pub accepted: Nanos,
    /// The local address, once it was asked for.
    pub local: Option<SocketAddr>,
    /// How long the next request may take to come: `client_header_timeout` at first, then `keepalive_timeout`.
    pub patience: Duration,
    /// Its only timer.
    pub timer: Timer,
    /// The next data sent is the last of the connection: a close follows at once.
    pub last_words: bool,
    entry: Rc<ClientEntry>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.worker.unregister_client(&self.entry);
    }
}

/// A client that sends nothing for so long after a response is parked: it waits in a task of its own that is a fraction
/// of the size of one that can serve a request.
const PARK_AFTER: Duration = Duration::from_millis(50);

/// The state of a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// It waits for the next request.
    KeepAlive,
    /// It is closed.
    Close,
    /// It is closed once the client has stopped sending.
    Linger,
}

/// The result of waiting for a request.
enum Arrival {
    /// Its first bytes.
    Request(Buffer),
    /// Nothing came until the timeout.
    Nothing,
    /// The end of the connection.
    End,
}

/// Why writing to a client ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// It closed or reset the connection.
    Closed,
    /// `send_timeout` passed.
    TimedOut,
}

/// Serves a connection until its end.
#[expect(
    clippy::manual_async_fn,
    reason = "a block that captures holds the connection once, the parameters of an `async fn` twice"
)]
pub fn serve(mut client: Client) -> impl Future<Output = ()> {
    async move {
        clock::now();
        let Arrival::Request(buffer) = client.wait_for_request(client.patience).await else { return };
        if client.serve_requests(buffer).await == Rest::Park {
            event_loop::spawn(park(client));
        }
    }
}

/// Waits with an idle connection until its next request or its timeout.
fn park(mut client: Client) -> impl Future<Output = ()> {
    client.change_task();
    async move {
        if let Arrival::Request(buffer) = client.wait_for_request(client.patience - PARK_AFTER).await {
            event_loop::spawn(resume(client, buffer));
        }
    }
}

/// Serves a connection that was parked.
fn resume(mut client: Client, buffer: Buffer) -> impl Future<Output = ()> {
    client.change_task();
    async move {
        if client.serve_requests(buffer).await == Rest::Park {
            event_loop::spawn(park(client));
        }
    }
}

/// What is left to do with a connection.
#[derive(PartialEq, Eq)]
enum Rest {
    /// Nothing: it ends.
    Nothing,
    /// Wait for its next request for a long time.
    Park,
}

impl Client {
    /// A connection that was just accepted.
    pub fn new(worker: Rc<Worker>, arrived: Arrived, listener: Rc<Listener>) -> Client {
        let Arrived { socket, peer, entry, serial } = arrived;
        let patience = listener.conf().groups[0].default_server.connection.client_header_timeout;
        Client {
            worker,
            socket,
            peer,
            listener,
            serial,
            requests: 0,
            accepted: clock::now(),
            local: None,
            patience,
            timer: Timer::default(),
            last_words: false,
            entry,
        }
    }

    /// Goes on in another task: timer and registry still have the waker of the task before.
    fn change_task(&mut self) {
        self.timer = Timer::default();
        self.entry.forget_waker();
    }

    /// Serves requests, the first of which begins in `buffer`, for as long as they follow one another.
    async fn serve_requests(&mut self, mut buffer: Buffer) -> Rest {
        loop {
            let mut x = self.worker.take_exchange();
            self.requests += 1;
            let after = phases::serve_request(self, &mut x, buffer).await;
            let pipelined = x.input.take().filter(|buffer| !buffer.is_empty());
            self.worker.put_back_exchange(x);
            buffer = match (after, pipelined) {
                (After::KeepAlive, Some(mut buffer)) => {
                    buffer.shift(0);
                    buffer
                }
                (After::KeepAlive, None) => match self.wait_for_request(PARK_AFTER.min(self.patience)).await {
                    Arrival::Request(buffer) => buffer,
                    Arrival::Nothing if self.patience > PARK_AFTER => return Rest::Park,
                    Arrival::Nothing | Arrival::End => return Rest::Nothing,
                },
                (After::Close, _) => return Rest::Nothing,
                (After::Linger, unread) => {
                    drop(unread);
                    self.linger().await;
                    return Rest::Nothing;
                }
            };
        }
    }

    /// Waits for the first bytes of a request.
    async fn wait_for_request(&mut self, patience: Duration) -> Arrival {
        let fresh = self.requests == 0;
        self.entry.idle_since.set(clock::recent());
        if !fresh && self.socket.watch().is_err() {
            return Arrival::End;
        }
        let mut deadline = clock::after(patience);
        let mut drains = false;
        // A new connection mostly has its request in the socket already; an idle one must not hold a buffer.
        let mut buffer = fresh.then(Buffer::take);
        let received = poll_fn(|cx| {
            let received = match &mut buffer {
                Some(buffer) => self.socket.poll_recv(cx, buffer, usize::MAX),
                none => self.socket.poll_recv_buffer(cx, none),
            };
            match received {
                Poll::Ready(Ok(read)) if read > 0 => {
                    return Poll::Ready(buffer.take().map_or(Arrival::End, Arrival::Request));
                }
                Poll::Ready(_) => return Poll::Ready(Arrival::End),
                // From here on the event loop reports when there is something to read.
                Poll::Pending => buffer = None,
            }
            self.entry.watch(cx.waker());
            if !drains && let Some(patience) = self.entry.drain.get() {
                drains = true;
                clock::now();
                deadline = deadline.min(clock::after(patience));
            }
            if self.entry.evicted.get() {
                // A request that has just arrived is served; the event loop may not have reported it yet.
                return Poll::Ready(self.socket.try_recv_buffer().map_or(Arrival::End, Arrival::Request));
            }
            if !self.timer.poll_expired(cx, deadline) {
                return Poll::Pending;
            }
            let late = if drains { self.socket.try_recv_buffer() } else { None };
            Poll::Ready(late.map_or(Arrival::Nothing, Arrival::Request))
        })
        .await;
        self.entry.idle_since.set(0);
        // A request that has arrived nevertheless is served.
        self.entry.evicted.set(false);
        match received {
            Arrival::Request(_) if memory::pressure() == Pressure::Requests => {
                self.worker.make_memory(&self.listener.site);
                Arrival::End
            }
            received => received,
        }
    }

    /// Reads more of a request's head, unless memory is short and this client has to be closed.
    ///
    /// # Errors
    /// The end of the stream, the deadline, or no memory.
    pub async fn read_head(&mut self, buffer: &mut Buffer, deadline: Nanos) -> Result<(), BodyError> {
        if self.entry.head_since.get() == 0 {
            self.entry.head_since.set(clock::recent());
        }
        poll_fn(|cx| {
            let too_large = buffer.end >= LARGE_HEAD && memory::pressure() >= Pressure::Heads;
            if too_large || self.entry.evicted.get() {
                return Poll::Ready(Err(BodyError::NoMemory));
            }
            self.entry.watch(cx.waker());
            self.poll_more(cx, buffer, deadline)
        })
        .await
    }

    /// The request's head is complete, or will not be.
    pub fn end_head(&self) {
        self.entry.head_since.set(0);
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, deadline: Nanos) -> Poll<Result<(), BodyError>> {
        match self.socket.poll_recv(cx, buffer, usize::MAX) {
            Poll::Ready(Ok(read)) if read > 0 => {
                clock::now();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(_) => Poll::Ready(Err(BodyError::Closed)),
            Poll::Pending if self.timer.poll_expired(cx, deadline) => Poll::Ready(Err(BodyError::TimedOut)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The local address of a TCP connection.
    pub fn local_address(&mut self) -> Option<SocketAddr> {
        if self.local.is_none() {
            self.local = self.socket.local_address();
        }
        self.local
    }

    /// Whether the connection should end with the response at hand.
    pub fn must_end(&self) -> bool {
        self.worker.is_draining() || !self.worker.listens_on(&self.listener)
    }

    /// Writes two pieces, the second behind the first, in as few system calls as the socket allows.
    ///
    /// # Errors
    /// The client has closed the connection, or does not read.
    pub async fn send(&mut self, first: &[u8], second: &[u8], timeout: Duration) -> Result<(), SendError> {
        let (total, mut sent) = (first.len() + second.len(), 0);
        while sent < total {
            let mut deadline = 0;
            let wrote = poll_fn(|cx| {
                let result = if sent >= first.len() {
                    self.socket.poll_send(cx, &[IoSlice::new(&second[sent - first.len()..])], self.last_words)
                } else if second.is_empty() {
                    self.socket.poll_send(cx, &[IoSlice::new(&first[sent..])], self.last_words)
                } else {
                    self.socket.poll_send(cx, &[IoSlice::new(&first[sent..]), IoSlice::new(second)], self.last_words)
                };
                match result {
                    Poll::Ready(Ok(wrote)) => Poll::Ready(Ok(wrote)),
                    Poll::Ready(Err(_)) => Poll::Ready(Err(SendError::Closed)),
                    Poll::Pending => {
                        if deadline == 0 {
                            clock::now();
                            deadline = clock::after(timeout);
                        }
                        match self.timer.poll_expired(cx, deadline) {
                            true => Poll::Ready(Err(SendError::TimedOut)),
                            false => Poll::Pending,
                        }
                    }
                }
            })
            .await?;
            if deadline != 0 {
                clock::now();
            }
            sent += wrote;
        }
        Ok(())
    }

    /// Sends up to `limit` bytes of a file from `offset` on, waiting while the client does not read; 0 shows that the file
    /// is shorter.
    ///
    /// # Errors
    /// The client has closed the connection, or does not read.
    pub async fn send_file(
        &mut self,
        file: &File,
        offset: u64,
        limit: usize,
        timeout: Duration,
    ) -> Result<usize, SendError> {
        let deadline = clock::after(timeout);
        poll_fn(|cx| match self.socket.poll_send_file(cx, file, offset, limit) {
            Poll::Ready(Ok(sent)) => Poll::Ready(Ok(sent)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(SendError::Closed)),
            Poll::Pending if self.timer.poll_expired(cx, deadline) => Poll::Ready(Err(SendError::TimedOut)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// How many of `wanted` bytes may move now at this rate, after `sent` since `begun`; waits while there are none.
    pub async fn allowance(&mut self, rate: Rate, sent: u64, begun: Nanos, wanted: usize) -> usize {
        loop {
            match rate.allowance(sent, clock::now() - begun, wanted) {
                Ok(allowed) => return allowed,
                Err(pause) => self.timer.sleep(pause).await,
            }
        }
    }

    /// Ends a connection whose client may still be sending: a close now would reset it and could destroy the
    /// response on its way.
    async fn linger(&mut self) {
        self.socket.shutdown_write();
        let end = clock::after(self.entry.drain.get().map_or(LINGER.0, |patience| patience.min(LINGER.0)));
        loop {
            let deadline = clock::after(LINGER.1).min(end);
            if clock::now() >= end {
                return;
            }
            // Only what has come is in a buffer, and that for a moment.
            let read = poll_fn(|cx| match self.socket.poll_recv_buffer(cx, &mut None) {
                Poll::Pending if self.timer.poll_expired(cx, deadline) => Poll::Ready(Ok(0)),
                read => read,
            });
            if !read.await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    }
}

impl Rate {
    /// Bytes that may be sent now, or how long to wait for some, as NGINX counts: the first second's share at once.
    pub fn allowance(self, sent: u64, elapsed: Nanos, wanted: usize) -> Result<usize, Duration> {
        if self.limit == 0 {
            return Ok(wanted);
        }
        let seconds = elapsed as f64 / 1e9;
        let earned = self.limit as f64 * (seconds.floor() + 1.0) + self.after as f64;
        let left = earned - sent as f64;
        if left >= 1.0 {
            return Ok((left as usize).clamp(1, wanted.max(1)));
        }
        // Nothing changes before the next second begins.
        let seconds_over = (-left / self.limit as f64).max(0.0).floor();
        Err(Duration::from_secs_f64(1.0 - seconds.fract() + seconds_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_each_second_its_share() {
        let rate = Rate { limit: 1000, after: 500 };
        assert_eq!(rate.allowance(0, 0, 10_000), Ok(1500));
        assert_eq!(rate.allowance(1500, 250_000_000, 10), Err(Duration::from_millis(750)));
        assert_eq!(rate.allowance(3500, 250_000_000, 10), Err(Duration::from_millis(2750)));
        assert_eq!(rate.allowance(1500, 1_000_000_000, 10_000), Ok(1000));
        assert_eq!(rate.allowance(0, 0, 10), Ok(10));
        assert_eq!(Rate::default().allowance(1 << 40, 0, 7), Ok(7));
    }
}
