//! A resolver beside name servers on this machine.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType, rdata};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::*;
use crate::service::{Place, Places};

/// What a name server answers to a question; `None` for silence.
type Rule = dyn Fn(&Message) -> Option<Message>;

/// A name server, and how often it was asked.
struct Server {
    address: SocketAddr,
    asked: Rc<Cell<usize>>,
}

/// Sockets of UDP and TCP with one port, which the other tests and the system leave free for both.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            return (socket, listener);
        }
    }
}

impl Server {
    /// By UDP, and with `tcp` also by TCP.
    async fn start(rule: impl Fn(&Message) -> Option<Message> + 'static, tcp: bool) -> Server {
        let rule: Rc<Rule> = Rc::new(rule);
        let asked = Rc::new(Cell::new(0));
        let (socket, listener) = sockets().await;
        let address = socket.local_addr().unwrap();
        let (count, answers) = (Rc::clone(&asked), Rc::clone(&rule));
        tokio::task::spawn_local(async move {
            let mut room = [0; 2048];
            loop {
                let (length, peer) = socket.recv_from(&mut room).await.unwrap();
                count.set(count.get() + 1);
                if let Some(mut answer) = answers(&Message::from_vec(&room[..length]).unwrap()) {
                    if answer.answers.len() > 20 {
                        answer.answers.clear();
                        answer.metadata.truncation = true;
                    }
                    socket.send_to(&answer.to_vec().unwrap(), peer).await.unwrap();
                }
            }
        });
        if tcp {
            tokio::task::spawn_local(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let length = stream.read_u16().await.unwrap();
                    let mut question = vec![0; length.into()];
                    stream.read_exact(&mut question).await.unwrap();
                    let answer = rule(&Message::from_vec(&question).unwrap()).unwrap().to_vec().unwrap();
                    stream.write_u16(answer.len() as u16).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            });
        }
        Server { address, asked }
    }
}

fn reply(question: &Message) -> Message {
    let mut message = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    message.add_queries(question.queries.clone());
    message
}

/// An answer with these targets of a service: priority, weight, port and host.
fn service(question: &Message, targets: &[(u16, u16, u16, &str)]) -> Message {
    let mut message = reply(question);
    message.add_answers(targets.iter().map(|&(priority, weight, port, host)| {
        let data = rdata::SRV::new(priority, weight, port, Name::from_ascii(host).unwrap());
        Record::from_rdata(question.queries[0].name().clone(), 30, RData::SRV(data))
    }));
    message
}

fn with_addresses(question: &Message, ttl: u32, hosts: impl IntoIterator<Item = u8>) -> Message {
    let mut message = reply(question);
    if question.queries[0].query_type() == RecordType::A {
        let name = question.queries[0].name();
        message.add_answers(
            hosts
                .into_iter()
                .map(|last| Record::from_rdata(name.clone(), ttl, RData::A(rdata::A(Ipv4Addr::new(10, 0, 0, last))))),
        );
    }
    message
}

fn refused(question: &Message, code: ResponseCode) -> Message {
    let mut message = reply(question);
    message.metadata.response_code = code;
    message
}

fn resolver(servers: &[&Server]) -> Resolver {
    Resolver::new(Settings {
        servers: servers.iter().map(|server| server.address).collect(),
        valid: None,
        v4: true,
        v6: false,
        timeout: Duration::from_secs(30),
    })
}

/// Runs a test on one thread.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(test));
}

fn last_bytes(addresses: &Addresses) -> Vec<u8> {
    addresses
        .list
        .iter()
        .map(|address| match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        })
        .collect()
}

#[test]
fn answers_are_kept_and_asked_for_once() {
    run(async {
        let server = Server::start(|question| Some(with_addresses(question, 60, [1, 2])), false).await;
        let resolver = resolver(&[&server]);
        let together = tokio::join!(resolver.addresses("a.example"), resolver.addresses("A.Example"));
        assert_eq!(last_bytes(&together.0.unwrap()), [1, 2]);
        assert_eq!(together.1.unwrap().list.len(), 2);
        resolver.addresses("a.example").await.unwrap();
        assert_eq!(server.asked.get(), 1);
        resolver.addresses("b.example").await.unwrap();
        assert_eq!((server.asked.get(), resolver.statistics().counts().names), (2, 2));
    });
}

#[test]
fn a_server_that_fails_is_passed_over() {
    run(async {
        let bad = Server::start(|question| Some(refused(question, ResponseCode::ServFail)), false).await;
        let good = Server::start(|question| Some(with_addresses(question, 60, [3])), false).await;
        let resolver = resolver(&[&bad, &good]);
        for host in ["a.example", "b.example", "c.example"] {
            assert_eq!(last_bytes(&resolver.addresses(host).await.unwrap()), [3]);
        }
        let alone = self::resolver(&[&bad]);
        assert_eq!(alone.addresses("a.example").await, Err(Failure::Refused(2)));
        let counts = alone.statistics().counts();
        assert!(counts.codes[2] >= 1 && counts.codes[0] == 0, "{counts:?}");
    });
}

#[test]
fn a_name_that_does_not_exist_is_not_asked_for_twice() {
    run(async {
        let server = Server::start(|question| Some(refused(question, ResponseCode::NXDomain)), false).await;
        let resolver = resolver(&[&server]);
        assert_eq!(resolver.addresses("no.example").await, Err(Failure::NotFound));
        assert_eq!(resolver.addresses("no.example").await, Err(Failure::NotFound));
        assert_eq!(server.asked.get(), 1);
    });
}

#[test]
fn large_answers_come_by_tcp() {
    run(async {
        let server = Server::start(|question| Some(with_addresses(question, 60, 1..=200)), true).await;
        let resolver = resolver(&[&server]);
        assert_eq!(resolver.addresses("many.example").await.unwrap().list.len(), 200);
    });
}

#[test]
fn guesses_of_an_attacker_are_not_believed() {
    run(async {
        // Answers with another number, or in other letters, come before the good one by TCP.
        let forged = Rc::new(RefCell::new(0));
        let seen = Rc::clone(&forged);
        let (socket, listener) = sockets().await;
        let address = socket.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let mut room = [0; 2048];
            let (length, peer) = socket.recv_from(&mut room).await.unwrap();
            for guess in 0..40u16 {
                let mut answer = with_addresses(&Message::from_vec(&room[..length]).unwrap(), 60, [66]);
                if guess % 2 == 0 {
                    answer.metadata.id = answer.metadata.id.wrapping_add(1 + guess);
                } else {
                    let lower = answer.queries[0].name().to_lowercase();
                    answer.queries[0].set_name(lower);
                }
                socket.send_to(&answer.to_vec().unwrap(), peer).await.unwrap();
                *seen.borrow_mut() += 1;
            }
        });
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let answer = with_addresses(&Message::from_vec(&question).unwrap(), 60, [5]).to_vec().unwrap();
            stream.write_u16(answer.len() as u16).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        });
        let server = Server { address, asked: Rc::default() };
        let found = resolver(&[&server]).addresses("a-name-with-many-letters-to-guess.example").await.unwrap();
        assert_eq!((last_bytes(&found), *forged.borrow()), (vec![5], 40));
    });
}

#[test]
fn services_have_ports_weights_and_backups() {
    run(async {
        let rule = |question: &Message| {
            let query = &question.queries[0];
            match query.query_type() {
                RecordType::SRV => Some(service(
                    question,
                    &[(10, 3, 8001, "one.example."), (20, 1, 8002, "two.example."), (10, 1, 8003, "three.example.")],
                )),
                _ => {
                    let last = match query.name().to_lowercase().to_ascii().as_str() {
                        "one.example." => 1,
                        "two.example." => 2,
                        _ => 3,
                    };
                    Some(with_addresses(question, 60, [last]))
                }
            }
        };
        let server = Server::start(rule, false).await;
        let places = resolver(&[&server]).places_of_service("http", "app.example", &[]).await.unwrap();
        let shown: Vec<_> =
            places.list.iter().map(|place| (place.address.to_string(), place.weight, place.is_backup)).collect();
        let expected = [
            ("10.0.0.3:8003".to_owned(), Some(1), false),
            ("10.0.0.1:8001".to_owned(), Some(3), false),
            ("10.0.0.2:8002".to_owned(), Some(1), true),
        ];
        assert_eq!(shown, expected);
    });
}

/// A server that was known before.
fn known(address: &str, host: Option<&str>) -> Place {
    Place {
        is_backup: false,
        address: address.parse().unwrap(),
        weight: host.map(|_| 1),
        host: host.map(str::to_owned),
    }
}

fn shown(places: &Places) -> Vec<(String, Option<u16>)> {
    let mut shown: Vec<_> = places.list.iter().map(|place| (place.address.to_string(), place.weight)).collect();
    shown.sort();
    shown
}

#[test]
fn addresses_of_a_kind_that_cannot_be_asked_for_stay() {
    run(async {
        let rule = |question: &Message| {
            Some(match question.queries[0].query_type() {
                RecordType::AAAA => refused(question, ResponseCode::ServFail),
                _ if question.queries[0].name().to_lowercase().to_ascii().starts_with("none") => reply(question),
                _ => with_addresses(question, 60, [2]),
            })
        };
        let server = Server::start(rule, false).await;
        let mut resolver = resolver(&[&server]);
        resolver.settings.v6 = true;
        let known = [known("10.0.0.1:80", None), known("[::1]:80", None)];
        let places = resolver.places("app.example", 80, &known).await.unwrap();
        assert_eq!(shown(&places), [("10.0.0.2:80".to_owned(), None), ("[::1]:80".to_owned(), None)]);
        assert_eq!(places.incomplete, Some(Failure::Refused(2)));
        // A name does not lose its last address while one of the questions was not answered.
        assert_eq!(resolver.places("none.example", 80, &known).await, Err(Failure::Refused(2)));
    });
}

#[test]
fn servers_of_a_service_that_cannot_be_asked_for_stay() {
    run(async {
        let rule = |question: &Message| {
            let query = &question.queries[0];
            if query.query_type() == RecordType::SRV {
                return Some(service(
                    question,
                    &[(1, 7, 8001, "one.example."), (1, 7, 8002, "two.example."), (1, 7, 8003, "three.example.")],
                ));
            }
            Some(match query.name().to_lowercase().to_ascii().as_str() {
                "one.example." => with_addresses(question, 60, [1]),
                "two.example." => refused(question, ResponseCode::ServFail),
                _ => refused(question, ResponseCode::NXDomain),
            })
        };
        let server = Server::start(rule, false).await;
        let resolver = resolver(&[&server]);
        let one = ("10.0.0.1:8001".to_owned(), Some(7));
        let places = resolver.places_of_service("http", "app.example", &[]).await.unwrap();
        assert_eq!((shown(&places), places.incomplete), (vec![one.clone()], Some(Failure::Refused(2))));
        let known = [
            known("10.0.0.9:8001", Some("one.example")),
            known("10.0.0.2:1", Some("two.example")),
            known("10.0.0.3:8003", Some("three.example")),
            known("10.0.0.4:8004", Some("four.example")),
        ];
        let places = resolver.places_of_service("http", "app.example", &known).await.unwrap();
        assert_eq!(shown(&places), [one, ("10.0.0.2:8002".to_owned(), Some(7))]);
    });
}

#[test]
fn a_priority_whose_servers_have_no_addresses_does_not_count() {
    run(async {
        let rule = |question: &Message| {
            let query = &question.queries[0];
            if query.query_type() == RecordType::SRV {
                return Some(service(
                    question,
                    &[(1, 1, 80, "none.example."), (2, 1, 80, "two.example."), (3, 1, 80, "three.example.")],
                ));
            }
            Some(match query.name().to_lowercase().to_ascii().as_str() {
                "two.example." => with_addresses(question, 60, [2]),
                "three.example." => with_addresses(question, 60, [3]),
                _ => refused(question, ResponseCode::NXDomain),
            })
        };
        let server = Server::start(rule, false).await;
        let places = resolver(&[&server]).places_of_service("http", "app.example", &[]).await.unwrap();
        let shown: Vec<_> = places.list.iter().map(|place| (place.address.to_string(), place.is_backup)).collect();
        assert_eq!(shown, [("10.0.0.2:80".to_owned(), false), ("10.0.0.3:80".to_owned(), true)]);
        assert_eq!(places.absent, ["none.example"]);
    });
}

#[test]
fn names_that_nobody_answers_do_not_hold_up_others() {
    run(async {
        let is_good =
            |question: &Message| question.queries[0].name().to_ascii().to_ascii_lowercase().starts_with("good");
        let server =
            Server::start(move |question| is_good(question).then(|| with_addresses(question, 60, [1])), false).await;
        let resolver = Rc::new(resolver(&[&server]));
        let silent = (0..2 * FOLLOWED).map(|index| {
            let resolver = Rc::clone(&resolver);
            tokio::task::spawn_local(async move { resolver.places(&format!("silent{index}"), 80, &[]).await })
        });
        let silent: Vec<_> = silent.collect();
        tokio::task::yield_now().await;
        assert_eq!(resolver.places("good", 80, &[]).await.unwrap().list.len(), 1);
        assert!(silent.iter().all(|question| !question.is_finished()), "it has waited for them");
    });
}

#[test]
fn a_name_that_waits_takes_little_memory() {
    let resolver = resolver(&[]);
    let sizes = [
        size_of_val(&resolver.places("app.example", 80, &[])),
        size_of_val(&resolver.places_of_service("http", "app.example", &[])),
    ];
    assert!(sizes.iter().all(|size| *size < 6000), "{sizes:?}");
}

/// In virtual time: an answer holds for its time to live and no longer, and a silent server costs two seconds.
#[test]
fn time_to_live_and_patience() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let mut cache = Resolver::new(Settings {
            servers: Vec::new(),
            valid: None,
            v4: true,
            v6: true,
            timeout: Duration::from_secs(5),
        });
        assert_eq!(cache.addresses("a.example").await, Err(Failure::TimedOut));
        let response = Response {
            code: 0,
            truncated: false,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            targets: Vec::new(),
            alias: None,
            ttl: Duration::from_secs(7),
        };
        let key = ("b.example".to_owned(), Kind::V4);
        let (_, until) = cache.keep(&key, Ok((Arc::new(response.clone()), response.ttl)));
        assert_eq!(until - Instant::now(), Duration::from_secs(7));
        tokio::time::advance(Duration::from_millis(6_999)).await;
        assert!(cache.known(&key).is_some());
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(cache.known(&key).is_none());
        cache.settings.valid = Some(Duration::from_secs(90));
        let (_, until) = cache.keep(&key, Ok((Arc::new(response.clone()), response.ttl)));
        assert_eq!(until - Instant::now(), Duration::from_secs(90));
        // That there is no such name holds no longer than the answer says.
        for (says, holds) in [(60, 60), (600, 90)] {
            let (_, until) = cache.keep(&key, Err((Failure::NotFound, Duration::from_secs(says))));
            assert_eq!(until - Instant::now(), Duration::from_secs(holds));
        }
    }));
}
