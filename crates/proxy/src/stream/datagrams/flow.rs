//! A session of datagrams as its socket's receiver and its task share it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Waker};

use balanza_net::clock::{self, Nanos};
use balanza_net::transport::Counted;
use balanza_net::udp::connected::Connected;
use balanza_net::udp::joining::Run;
use balanza_net::udp::port::Port;

use super::account::{Account, Expected};
use super::table::{Key, Table};
use crate::downstream::Rate;

/// Datagrams that wait while there is no server, and their bytes.
const MOST_WAITING: (usize, usize) = (64, 64 * 1024);
/// Those that are kept until the server has answered, because another one may need them.
const MOST_KEPT: (usize, usize) = (4, 8 * 1024);

/// What the receiver and the task of a session share.
pub struct Flow {
    port: Rc<Port>,
    flows: Rc<Table<Flow>>,
    /// The client.
    pub client: SocketAddr,
    /// The address that it sends to.
    pub local: SocketAddr,
    expected: Expected,
    account: Cell<Account>,
    kept: RefCell<Kept>,
    server: RefCell<Option<Rc<Connected>>>,
    failed: Cell<Option<io::Error>>,
    /// `proxy_upload_rate`, and when the session began.
    rate: Cell<(Rate, Nanos)>,
    waker: RefCell<Option<Waker>>,
    /// A client counts as a connection, as its session's socket does.
    _counted: Counted,
}

/// The first datagrams of the client.
#[derive(Default)]
struct Kept {
    datagrams: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// There were too many, or a server has answered: they are not kept any more.
    over: bool,
}

impl Kept {
    /// Keeps one more, if there is room.
    fn keep(&mut self, datagram: &[u8], (most, most_bytes): (usize, usize)) -> bool {
        let fits = self.datagrams.len() < most && self.bytes + datagram.len() <= most_bytes;
        if fits {
            self.bytes += datagram.len();
            self.datagrams.push_back(datagram.into());
        }
        fits
    }

    fn end(&mut self) {
        if !self.over {
            *self = Kept { over: true, ..Kept::default() };
        }
    }
}

impl Flow {
    /// A session that begins with the next datagram; from now on the table has it.
    pub fn begin(port: &Rc<Port>, flows: &Rc<Table<Flow>>, (client, local): Key, expected: Expected) -> Rc<Flow> {
        let flow = Rc::new(Flow {
            port: Rc::clone(port),
            flows: Rc::clone(flows),
            client,
            local,
            expected,
            account: Cell::default(),
            kept: RefCell::default(),
            server: RefCell::default(),
            failed: Cell::default(),
            rate: Cell::default(),
            waker: RefCell::default(),
            _counted: Counted::default(),
        });
        flows.insert((client, local), &flow);
        flow
    }

    /// The counts.
    pub fn account(&self) -> Account {
        self.account.get()
    }

    /// The client has sent a datagram.
    pub fn take(&self, datagram: &[u8]) {
        let (rate, begun) = self.rate.get();
        let mut account = self.account.get();
        let now = clock::recent();
        if rate.allowance(account.from_client, now.saturating_sub(begun), 1).is_err() {
            return;
        }
        account.request(now, datagram.len());
        self.account.set(account);
        if account.is_full(self.expected) {
            self.leave();
        }
        let server = self.server.borrow().clone();
        let mut kept = self.kept.borrow_mut();
        let most = if server.is_some() { MOST_KEPT } else { MOST_WAITING };
        if !kept.over && !kept.keep(datagram, most) && server.is_some() {
            kept.end();
        }
        drop(kept);
        if let Some(server) = server {
            self.send(&server, datagram);
            if self.account.get().is_done(self.expected) {
                self.wake();
            }
        }
    }

    /// Passes a run of datagrams on in one piece, if none of them has to be looked at by itself: false if one has.
    pub fn take_run(&self, run: Run<'_>) -> bool {
        let server = self.server.borrow().clone();
        let (rate, _) = self.rate.get();
        let Some(server) = server.filter(|_| rate.limit == 0 && self.expected.requests == 0 && self.kept.borrow().over)
        else {
            return false;
        };
        let mut account = self.account.get();
        account.run(clock::recent(), run.count(), run.bytes().len());
        self.account.set(account);
        self.sent(server.send_run(run), run.bytes().len());
        true
    }

    /// The client's first datagram, while it is kept.
    pub fn first(&self) -> Option<Box<[u8]>> {
        self.kept.borrow().datagrams.front().cloned()
    }

    /// Datagrams go to this server from now on, first those that are kept. `header` goes before the first one.
    pub fn begin_server(&self, server: Rc<Connected>, header: &[u8]) {
        self.failed.take();
        self.account.set(Account { to_server: 0, from_server: 0, ..self.account.get() });
        for (index, datagram) in self.kept.borrow().datagrams.iter().enumerate() {
            if index == 0 && !header.is_empty() {
                self.send(&server, &[header, datagram].concat());
            } else {
                self.send(&server, datagram);
            }
        }
        *self.server.borrow_mut() = Some(server);
        let mut kept = self.kept.borrow_mut();
        if kept.datagrams.len() > MOST_KEPT.0 || kept.bytes > MOST_KEPT.1 {
            kept.end();
        }
    }

    /// The server has failed: what comes is kept for another one.
    pub fn end_server(&self) {
        *self.server.borrow_mut() = None;
    }

    /// `proxy_upload_rate` holds from now on.
    pub fn limit(&self, rate: Rate, begun: Nanos) {
        self.rate.set((rate, begun));
    }

    fn send(&self, server: &Connected, datagram: &[u8]) {
        self.sent(server.send(datagram), datagram.len());
    }

    fn sent(&self, sent: io::Result<()>, bytes: usize) {
        match sent {
            Ok(()) => {
                let account = self.account.get();
                let to_server = account.to_server + bytes as u64;
                self.account.set(Account { to_server, ..account });
            }
            Err(error) => {
                self.failed.set(Some(error));
                self.wake();
            }
        }
    }

    /// What a send has told since the last call.
    pub fn failure(&self) -> Option<io::Error> {
        self.failed.take()
    }

    /// A datagram of the server goes to the client.
    pub fn answer(&self, datagram: &[u8]) {
        let mut account = self.account.get();
        account.response(clock::recent(), datagram.len());
        self.account.set(account);
        self.kept.borrow_mut().end();
        self.port.send(self.client, self.local, datagram);
    }

    /// A text of our own goes to the client.
    pub fn say(&self, text: &[u8]) {
        let account = self.account.get();
        self.account.set(Account { to_client: account.to_client + text.len() as u64, ..account });
        self.port.send(self.client, self.local, text);
    }

    /// Whether the session is complete.
    pub fn is_done(&self) -> bool {
        self.account.get().is_done(self.expected)
    }

    /// Whether the server owes nothing.
    pub fn is_answered(&self) -> bool {
        self.account.get().is_answered(self.expected)
    }

    /// Wakes this task when something has happened.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The next datagram of the client begins another session.
    fn leave(&self) {
        self.flows.remove(&(self.client, self.local), self);
    }
}

/// The task's share of a flow: when it ends, the table forgets the session.
pub struct Held(pub Rc<Flow>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.leave();
        // The task's waker and the server's socket would outlive the session in what the receiver may still hold.
        self.0.end_server();
        *self.0.waker.borrow_mut() = None;
    }
}
