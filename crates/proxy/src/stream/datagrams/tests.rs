//! The table of sessions and their counts in virtual time, against a history that is read as a whole for each answer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use proptest::prelude::*;

use super::account::{Account, Expected};
use super::table::{Key, Table};

const TIMEOUT: u64 = 1000;

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A client sends a datagram.
    Request(u16),
    /// The server of a client's newest session sends one.
    Response(u16),
    /// Time passes.
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u16..5).prop_map(Event::Request),
        4 => (0u16..5).prop_map(Event::Response),
        1 => (1u64..1500).prop_map(Event::Wait),
    ]
}

/// A session with all that has happened in it.
#[derive(Default, Clone)]
struct Told {
    client: u16,
    requests: Vec<u64>,
    responses: Vec<u64>,
    over: bool,
}

impl Told {
    /// NGINX's rule, in its words: `ngx_stream_proxy_test_finalize`.
    fn is_finished(&self, expected: Expected) -> bool {
        let Some(each) = expected.responses else { return false };
        let (requests, responses) = (self.requests.len() as u64, self.responses.len() as u64);
        let more_are_expected = expected.requests != 0 && requests < expected.requests;
        !more_are_expected && responses >= each * requests
    }

    fn last(&self) -> u64 {
        self.requests.iter().chain(&self.responses).copied().max().unwrap_or(0)
    }
}

fn key(client: u16) -> Key {
    (SocketAddr::from(([127, 0, 0, 1], 1000 + client)), SocketAddr::from(([127, 0, 0, 1], 53)))
}

proptest! {
    #[test]
    fn sessions_are_those_of_the_definition(
        events in proptest::collection::vec(event(), 0..200),
        requests in 0u64..4,
        responses in proptest::option::of(0u64..3),
    ) {
        let expected = Expected { requests, responses };
        let table: Table<Cell<Account>> = Table::default();
        let mut held: Vec<(u16, Rc<Cell<Account>>)> = Vec::new();
        let mut told: Vec<Told> = Vec::new();
        let mut now = 1;
        for event in events {
            match event {
                Event::Request(client) => {
                    // The definition: the client's newest session that is not over and not full takes it.
                    let full = |session: &Told| requests != 0 && session.requests.len() as u64 >= requests;
                    let open = told.iter_mut().rev().find(|it| it.client == client && !it.over && !full(it));
                    match open {
                        Some(session) => session.requests.push(now),
                        None => told.push(Told { client, requests: vec![now], ..Told::default() }),
                    }
                    let session = table.find(&key(client)).unwrap_or_else(|| {
                        let session = Rc::new(Cell::new(Account::default()));
                        table.insert(key(client), &session);
                        held.push((client, Rc::clone(&session)));
                        session
                    });
                    let mut account = session.get();
                    account.request(now, 10);
                    session.set(account);
                    if account.is_full(expected) {
                        table.remove(&key(client), &session);
                    }
                }
                Event::Response(client) => {
                    if let Some(session) = told.iter_mut().rev().find(|it| it.client == client && !it.over) {
                        session.responses.push(now);
                    }
                    if let Some((_, session)) = held.iter().rev().find(|(of, _)| *of == client) {
                        let mut account = session.get();
                        account.response(now, 7);
                        session.set(account);
                    }
                }
                Event::Wait(time) => now += time,
            }
            // Sessions that are complete or silent for too long are over.
            for session in &mut told {
                session.over |= session.is_finished(expected) || now >= session.last() + TIMEOUT;
            }
            held.retain(|(client, session)| {
                let account = session.get();
                let over = account.is_done(expected) || now >= account.deadline(TIMEOUT);
                if over {
                    table.remove(&key(*client), session);
                }
                !over
            });
            let counts = |told: &Told| (told.client, told.requests.len() as u64, told.responses.len() as u64);
            let expected_counts: Vec<_> = told.iter().filter(|session| !session.over).map(counts).collect();
            let seen: Vec<_> = held.iter().map(|(of, it)| (*of, it.get().requests, it.get().responses)).collect();
            prop_assert_eq!(seen, expected_counts);
            for (client, session) in &held {
                let account = session.get();
                prop_assert_eq!(account.from_client, 10 * account.requests);
                prop_assert_eq!(account.to_client, 7 * account.responses);
                // A client's datagrams never reach the session of another one, nor one that is full.
                if let Some(found) = table.find(&key(*client)) {
                    prop_assert!(!found.get().is_full(expected));
                    prop_assert!(held.iter().any(|(of, it)| of == client && Rc::ptr_eq(it, &found)));
                }
            }
        }
        // Nothing is left behind of what is over.
        for client in 0..5 {
            let lives = held.iter().any(|(of, it)| *of == client && !it.get().is_full(expected));
            prop_assert_eq!(table.find(&key(client)).is_some(), lives);
        }
    }
}

#[test]
fn a_session_that_ends_late_leaves_the_next_one_in_the_table() {
    let table: Table<u8> = Table::default();
    let (old, new) = (Rc::new(1), Rc::new(2));
    table.insert(key(1), &old);
    table.insert(key(1), &new);
    table.remove(&key(1), &old);
    assert_eq!(table.find(&key(1)).as_deref(), Some(&2));
    table.remove(&key(1), &new);
    assert_eq!(table.find(&key(1)), None);
}
