//! Sessions of UDP: the datagrams of one client, those that a server answers with, and a socket to that server.
//!
//! A worker has a socket of its own for each address, and the kernel's hash of the addresses leads the datagrams of a
//! client to the same one. So the table of sessions belongs to one thread and has no lock. It outlives configurations.

mod account;
mod flow;
mod relay;
mod table;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use balanza_config::model::Level;
use balanza_net::event_loop;
use balanza_net::listening::Peer;
use balanza_net::shortage::describe;
use balanza_net::udp::joining::Run;
use balanza_net::udp::port::Port;

pub use self::account::Expected;
pub use self::flow::{Flow, Held};
use self::relay::pass;
pub use self::table::Table;
use super::{ClientSide, Session, StreamListener, server_for};
use crate::client::{Admitted, Client};

/// The pause after a failed system call, as after a failed accept.
const PAUSE: Duration = Duration::from_millis(500);

/// Receives what clients send to one socket.
pub struct Receiver {
    /// The socket.
    pub port: Rc<Port>,
    /// The sessions of its address on this thread.
    pub flows: Rc<Table<Flow>>,
    /// What new sessions are served by.
    pub listener: Rc<StreamListener>,
}

impl Receiver {
    /// Receives for ever. `admit` makes room for a new client, or refuses it.
    pub async fn run(self, admit: impl Fn(Peer) -> Option<Admitted>) {
        loop {
            let error = poll_fn(|cx| {
                self.port.poll_receive(cx, |client, local, run| self.take_run(client, local, run, &admit))
            })
            .await;
            let error = describe(&error);
            self.listener.running.errors().write(Level::Crit, format_args!("recvmmsg() failed {error}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn take_run(&self, client: SocketAddr, local: SocketAddr, run: Run<'_>, admit: &impl Fn(Peer) -> Option<Admitted>) {
        if run.count() > 1 && self.flows.find(&(client, local)).is_some_and(|flow| flow.take_run(run)) {
            return;
        }
        run.datagrams().for_each(|datagram| self.take(client, local, datagram, admit));
    }

    fn take(&self, client: SocketAddr, local: SocketAddr, datagram: &[u8], admit: &impl Fn(Peer) -> Option<Admitted>) {
        if let Some(flow) = self.flows.find(&(client, local)) {
            flow.take(datagram);
            return;
        }
        let Some(admitted) = admit(Peer::Inet(client)) else { return };
        // It can be told at any time that the worker drains.
        admitted.entry.multiplexed.set(true);
        let server = server_for(&self.listener, || Some(local));
        let flow = Flow::begin(&self.port, &self.flows, (client, local), Expected::of(&server));
        flow.take(datagram);
        let side = ClientSide::Datagrams(Held(flow));
        event_loop::spawn(serve(Session::begin(Client::of(admitted), Rc::clone(&self.listener), server, side)));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.port.retire();
    }
}

/// Serves a session until its end.
#[expect(
    clippy::manual_async_fn,
    reason = "a block that captures holds the session once, the parameters of an `async fn` twice"
)]
fn serve(mut session: Session) -> impl Future<Output = ()> {
    async move {
        session.status = match session.phases().await {
            Ok(()) => pass(&mut session).await,
            Err(status) => status,
        };
        session.count_datagrams();
    }
}
