//! A simulated server: does what the plan of each request says.

use std::rc::Rc;
use std::time::Duration;

use balanza_net::event_loop;
use balanza_net::simulation::{Listener, Peer, Random, Reception};

use super::ledger::Ledger;
use super::plan::{AttemptPlan, Body, CLIENT_IDS, Early, Kind, RequestPlan, ServerFault};
use super::wire::{Framing, Head, Pace, Reader, Stop};

/// Accepts connections and serves each of them.
pub async fn serve(ledger: Rc<Ledger>, number: u64, address: std::net::SocketAddr) {
    let mut random = Random::new(ledger.knobs.seed ^ (number + 1) << 40);
    let (mut manner, knobs) = (random.split(), ledger.knobs.clone());
    let listener = Listener::new(address, move || match manner.below(100) {
        draw if draw < knobs.refuses => Reception::Refuse,
        draw if draw < knobs.refuses + knobs.silent => Reception::Silence,
        _ => Reception::Accept,
    });
    loop {
        let peer = listener.accept().await;
        let server = Server { ledger: Rc::clone(&ledger), number, random: random.split() };
        event_loop::spawn(server.converse(peer));
    }
}

struct Server {
    ledger: Rc<Ledger>,
    number: u64,
    random: Random,
}

/// What becomes of the connection.
#[derive(PartialEq, Eq)]
enum After {
    Keep,
    Close,
    Reset,
    /// It waits until the other side closes.
    Wait,
    /// The same, and no request may come.
    Spoilt,
}

impl Server {
    async fn converse(mut self, peer: Peer) {
        let pauses = self.ledger.knobs.pauses;
        let mut reader = Reader::new(&peer, Pace::new(self.random.split(), pauses));
        // The client that has authenticated itself over this connection.
        let mut owner = None;
        let after = loop {
            if reader.begin().await.is_err() {
                return;
            }
            let head = match reader.head().await {
                Ok(head) => head,
                Err(Stop::Malformed(what)) => {
                    self.ledger.violated(format_args!("a server got {what}"));
                    return;
                }
                Err(_) => return,
            };
            let Some((id, request, attempt, plan)) = self.look_up(&head) else {
                self.ledger.violated(format_args!("a server got {head:?}"));
                return;
            };
            let client = id / CLIENT_IDS;
            if owner.is_some_and(|owner| owner != client) {
                self.ledger.violated(format_args!("request {id} came over a connection of client {owner:?}"));
            }
            if request.authenticates {
                owner = Some(client);
            }
            match self.serve(&peer, &mut reader, &head, id, &request, attempt, &plan).await {
                After::Keep => {}
                after => break after,
            }
            // After an early answer the connection may be free as soon as the request is whole.
            if plan.early == Early::No && reader.has_unread() {
                self.ledger.violated(format_args!("more follows request {id} on its connection to a server"));
            }
            if plan.closes_idle {
                let pause = self.random.size(3_000);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                break After::Close;
            }
        };
        match after {
            After::Reset => peer.reset(),
            After::Wait => drop(reader.rest().await),
            After::Spoilt => {
                let (more, _) = reader.rest().await;
                if !more.is_empty() {
                    self.ledger.violated(format_args!("a connection is used again on which more than a response came"));
                }
            }
            After::Keep | After::Close => {}
        }
    }

    fn look_up(&self, head: &Head) -> Option<(u64, Rc<RequestPlan>, u64, Rc<AttemptPlan>)> {
        let id = head.number("x-id")?;
        let path = head.start.split(' ').nth(1)?;
        if path.rsplit('/').next()?.parse() != Ok(id) {
            self.ledger.violated(format_args!("{path} came with the fields of request {id}"));
        }
        let (request, attempt, plan) = self.ledger.attempt(id, self.number)?;
        if head.start.split(' ').next() != Some(request.method) {
            self.ledger.violated(format_args!("request {id} came as {}", head.start));
        }
        Some((id, request, attempt, plan))
    }

    #[expect(clippy::too_many_arguments, reason = "all of them say which request it is")]
    async fn serve(
        &mut self,
        peer: &Peer,
        reader: &mut Reader<'_>,
        head: &Head,
        id: u64,
        request: &RequestPlan,
        attempt: u64,
        plan: &AttemptPlan,
    ) -> After {
        if let Kind::Tunnel(there, back) = request.kind {
            return self.tunnel(peer, reader, id, attempt, there, back).await;
        }
        let reset = |resets: bool| if resets { After::Reset } else { After::Close };
        match plan.fault {
            ServerFault::Leaves(resets) => return reset(resets),
            ServerFault::Silent => return After::Wait,
            _ => {}
        }
        if plan.early != Early::No {
            match self.respond(peer, id, request, attempt, plan).await {
                After::Keep if plan.early == Early::Reads => {}
                After::Keep => return After::Close,
                after => return after,
            }
        }
        let framing = match head.framing() {
            Framing::UntilClose => Framing::Length(0),
            framing => framing,
        };
        let ledger = Rc::clone(&self.ledger);
        match reader.body(framing, |piece| ledger.received(id, attempt, piece)).await {
            Ok(()) => self.ledger.received_all(id, attempt),
            Err(Stop::Malformed(what)) => {
                self.ledger.violated(format_args!("request {id}: {what}"));
                return After::Close;
            }
            Err(_) => return After::Close,
        }
        match plan.early {
            Early::No => self.respond(peer, id, request, attempt, plan).await,
            _ if plan.close => After::Close,
            _ => After::Keep,
        }
    }

    async fn respond(
        &mut self,
        peer: &Peer,
        id: u64,
        request: &RequestPlan,
        attempt: u64,
        plan: &AttemptPlan,
    ) -> After {
        tokio::time::sleep(Duration::from_millis(plan.delay)).await;
        let mut pace = Pace::new(self.random.split(), self.ledger.knobs.pauses);
        for _ in 0..plan.interim {
            if !pace.write(peer, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await {
                return After::Close;
            }
        }
        let mut head = format!("HTTP/1.1 {} Fine\r\nX-Id: {id}\r\nX-Attempt: {attempt}\r\n", plan.status);
        match plan.body {
            Body::Length(length) => head += &format!("Content-Length: {length}\r\n"),
            Body::Chunked(_) => head += "Transfer-Encoding: chunked\r\n",
            Body::None | Body::UntilClose(_) => {}
        }
        if plan.close {
            head += "Connection: close\r\n";
        }
        head += "\r\n";
        let end = match plan.fault {
            ServerFault::Garbage => {
                pace.write(peer, b"no HTTP at all\r\n\r\n").await;
                return After::Close;
            }
            ServerFault::LeavesInHead => {
                let cut = self.random.between(1, head.len() as u64 - 1) as usize;
                pace.write(peer, &head.as_bytes()[..cut]).await;
                return After::Close;
            }
            ServerFault::Cuts(end, _) | ServerFault::Stalls(end) | ServerFault::BadChunk(end) => end,
            _ => plan.body.len(),
        };
        let bodiless = request.method == "HEAD" || plan.body == Body::None;
        if plan.fault == ServerFault::SaysMore && (bodiless || end < 1_000) {
            return self.say_more(peer, id, attempt, head.into_bytes(), plan, bodiless).await;
        }
        // The client may have got all of it before this task runs again.
        self.finish(id, attempt, bodiless || end == plan.body.len());
        let written = pace.write(peer, head.as_bytes()).await
            && (bodiless || pace.write_body(peer, (id, attempt), plan.body, end).await);
        if !written {
            self.finish(id, attempt, false);
            return After::Close;
        }
        match plan.fault {
            ServerFault::Cuts(_, true) if !bodiless => After::Reset,
            ServerFault::Cuts(_, false) if !bodiless => After::Close,
            ServerFault::Stalls(_) if !bodiless => After::Wait,
            ServerFault::BadChunk(_) if !bodiless => {
                pace.write(peer, b"no size\r\n").await;
                After::Wait
            }
            _ if plan.close => After::Close,
            _ => After::Keep,
        }
    }

    /// Notes whether the response leaves whole.
    fn finish(&self, id: u64, attempt: u64, finished: bool) {
        self.ledger.with(id, |record| record.attempts[attempt as usize].finished = finished);
    }

    /// The response and another one behind it arrive together.
    async fn say_more(
        &mut self,
        peer: &Peer,
        id: u64,
        attempt: u64,
        mut message: Vec<u8>,
        plan: &AttemptPlan,
        bodiless: bool,
    ) -> After {
        if !bodiless {
            let bytes = super::plan::content(id, attempt, 0, plan.body.len());
            match plan.body {
                Body::Chunked(0) => message.extend_from_slice(b"0\r\n\r\n"),
                Body::Chunked(length) => {
                    message.extend_from_slice(format!("{length:x}\r\n").as_bytes());
                    message.extend_from_slice(&bytes);
                    message.extend_from_slice(b"\r\n0\r\n\r\n");
                }
                _ => message.extend_from_slice(&bytes),
            }
        }
        if !matches!(plan.body, Body::UntilClose(_)) || bodiless {
            let more = b"HTTP/1.1 200 OK\r\nX-Id: 999999999\r\nX-Attempt: 0\r\nContent-Length: 0\r\n\r\n";
            message.extend_from_slice(more);
        }
        let written = peer.write_together(&message).await;
        self.finish(id, attempt, written.is_ok());
        match plan.early {
            _ if plan.close => After::Close,
            Early::No => After::Spoilt,
            // The rest of the request may come.
            Early::Reads | Early::Closes => After::Wait,
        }
    }

    async fn tunnel(
        &mut self,
        peer: &Peer,
        reader: &mut Reader<'_>,
        id: u64,
        attempt: u64,
        there: usize,
        back: usize,
    ) -> After {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: test\r\nX-Id: {id}\r\nX-Attempt: {attempt}\r\n\r\n"
        );
        let mut pace = Pace::new(self.random.split(), self.ledger.knobs.pauses);
        let ledger = Rc::clone(&self.ledger);
        let write = async {
            pace.write(peer, head.as_bytes()).await
                && pace.write_body(peer, (id, attempt), Body::Length(back), back).await
        };
        let read = reader.body(Framing::Length(there), |piece| ledger.received(id, attempt, piece));
        self.finish(id, attempt, true);
        let _ = tokio::join!(write, read);
        peer.shutdown_write();
        After::Wait
    }
}
