//! One request's way to its client: its body comes from there, and the response goes there.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use balanza_net::buffer::Buffer;
use balanza_net::clock::{self, Nanos};
use balanza_net::pipe::Pipe;
use balanza_net::timer::Timer;
use balanza_net::transport::Transport;

/// Why writing to a client ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// It closed or reset the connection.
    Closed,
    /// `send_timeout` passed.
    TimedOut,
}

/// The rules of a client's `limit_rate`.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second; 0 for no limit.
    pub limit: u64,
    /// Bytes before the limit holds.
    pub after: u64,
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

/// How a request's client is reached.
#[derive(Default)]
enum Carrier {
    /// There is none.
    #[default]
    None,
    /// A connection of HTTP/1, which carries one request at a time.
    Http1(Transport),
}

/// One request's way to its client.
#[derive(Default)]
pub struct Downstream {
    carrier: Carrier,
    /// The only timer of the request, and of a connection that carries one request at a time.
    pub timer: Timer,
    /// The next data sent is the last of the connection: a close follows at once.
    pub ends: bool,
}

impl Downstream {
    /// The connection of an HTTP/1 client.
    pub fn http1(socket: Transport) -> Downstream {
        Downstream { carrier: Carrier::Http1(socket), timer: Timer::default(), ends: false }
    }

    /// The connection, if it belongs to this request alone.
    ///
    /// # Panics
    /// It does not.
    pub fn socket(&self) -> &Transport {
        match &self.carrier {
            Carrier::Http1(socket) => socket,
            Carrier::None => panic!("a request without a client uses its connection"),
        }
    }

    /// The connection and the timer, at the same time.
    ///
    /// # Panics
    /// As [`Downstream::socket`].
    pub fn parts(&mut self) -> (&Transport, &mut Timer) {
        match &self.carrier {
            Carrier::Http1(socket) => (socket, &mut self.timer),
            Carrier::None => panic!("a request without a client uses its connection"),
        }
    }

    /// The address that the client connected to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket().local_address()
    }

    /// Reads into the free space of a buffer; 0 is the end of the stream.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        self.socket().poll_recv(cx, buffer, usize::MAX)
    }

    /// Writes what the client takes of these bytes.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket().poll_send(cx, &[IoSlice::new(bytes)], false)
    }

    /// Moves what a pipe holds to the client. `more` tells that more will follow.
    pub fn poll_splice_to(&self, cx: &mut Context<'_>, pipe: &mut Pipe, more: bool) -> Poll<io::Result<usize>> {
        self.socket().poll_splice_to(cx, pipe, more)
    }

    /// Whether what goes to the client can be moved inside the kernel.
    pub fn splices(&self) -> bool {
        self.socket().splices()
    }

    /// Waits until the client has gone. Never reads.
    pub fn poll_peer_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket().poll_peer_closed(cx)
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
                    self.socket().poll_send(cx, &[IoSlice::new(&second[sent - first.len()..])], self.ends)
                } else if second.is_empty() {
                    self.socket().poll_send(cx, &[IoSlice::new(&first[sent..])], self.ends)
                } else {
                    self.socket().poll_send(cx, &[IoSlice::new(&first[sent..]), IoSlice::new(second)], self.ends)
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
        poll_fn(|cx| match self.socket().poll_send_file(cx, file, offset, limit) {
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
