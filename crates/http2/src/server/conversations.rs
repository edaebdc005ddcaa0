//! Conversations with the client of the `h2` crate over a simulated network: concurrent requests of any kind, bodies
//! and windows of all sizes, and resets by either side. A seed determines the whole conversation.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::{Pin, pin};

use balanza_net::buffer;
use balanza_net::event_loop;
use balanza_net::simulation::{self, Conditions, Peer, Random};
use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// The client's end, as the `h2` crate needs it.
struct Wire(Peer);

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(pin!(self.0.read(out.initialize_unfilled())).poll(cx))?;
        out.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        pin!(self.0.write(bytes)).poll(cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shutdown_write();
        Poll::Ready(Ok(()))
    }
}

/// What happens in a request.
#[derive(Debug, Clone)]
struct Plan {
    index: usize,
    /// Bytes of the request's body.
    body: usize,
    /// The request has a Content-Length.
    has_length: bool,
    /// Request and response have trailers.
    trailers: bool,
    interim: bool,
    /// Bytes of the response's body.
    answer: usize,
    answer_has_length: bool,
    /// The most bytes in a DATA frame of the response.
    chunk: usize,
    /// The server responds before it reads the body.
    early: bool,
    /// The client resets the stream after this many bytes of the response.
    client_gives_up: Option<usize>,
    /// The server gives up after this many bytes, by an explicit abort (true) or by dropping the stream.
    server_gives_up: Option<(usize, bool)>,
}

fn plan(index: usize, random: &mut Random) -> Plan {
    let size = |random: &mut Random| {
        let most = random.pick(&[1, 10, 300, 5_000, 70_000, 200_000]);
        random.below(most) as usize
    };
    let (body, answer) = (size(random) * usize::from(random.percent(50)), size(random));
    Plan {
        index,
        body,
        has_length: random.percent(50),
        trailers: random.percent(30),
        interim: random.percent(10),
        answer,
        answer_has_length: random.percent(50),
        chunk: random.pick(&[1_000, 8_192, 16_384, usize::MAX]),
        early: random.percent(20),
        client_gives_up: random.percent(10).then(|| size(random)),
        server_gives_up: random.percent(10).then(|| (size(random), random.percent(50))),
    }
}

/// The bytes of a body.
fn content(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (index * 31 + at / 251 + at) as u8).collect()
}

/// What both sides report.
#[derive(Default)]
struct Report {
    faults: RefCell<Vec<String>>,
    answered: Cell<usize>,
    finished: Cell<bool>,
}

impl Report {
    fn check(&self, is_right: bool, what: std::fmt::Arguments<'_>) {
        if !is_right {
            self.faults.borrow_mut().push(what.to_string());
        }
    }
}

async fn serve(mut connection: Connection, plans: Rc<Vec<Plan>>, ends_after: Option<usize>, report: Rc<Report>) {
    let mut served = 0;
    poll_fn(|cx| {
        connection.begin_turn();
        loop {
            match ready!(connection.poll_request(cx)) {
                Some(Ok((asked, stream))) => {
                    served += 1;
                    if ends_after == Some(served) {
                        connection.end_gracefully();
                    }
                    let (plans, report) = (Rc::clone(&plans), Rc::clone(&report));
                    event_loop::spawn(async move {
                        if let Err(fault) = answer(asked, stream, &plans, &report).await {
                            report.check(fault.kind() == io::ErrorKind::BrokenPipe, format_args!("{fault}"));
                        }
                    });
                }
                Some(Err(error)) => {
                    let is_end = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
                    report.check(is_end, format_args!("the connection: {error}"));
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
    })
    .await;
}

async fn answer(asked: Asked, mut stream: Stream, plans: &[Plan], report: &Report) -> io::Result<()> {
    let mut request = Request::default();
    asked.translate(&Limits::default(), String::new, &mut request).map_err(|error| io::Error::other(error.reason))?;
    let index: usize = std::str::from_utf8(request.of(request.path)).unwrap()[1..].parse().unwrap();
    let plan = &plans[index];
    let mut reply = Fields::default();
    reply.push(b"Content-Type", b"text/plain");
    reply.push(b"X-Index", index.to_string().as_bytes());
    if !plan.early {
        read_body(&mut stream, plan, report).await?;
    }
    if plan.interim {
        stream.send_interim(103, &reply)?;
    }
    let mut trailers = Fields::default();
    if plan.trailers {
        trailers.push(b"X-Sum", b"7");
    }
    let body = content(index, plan.answer);
    let ends_alone = plan.answer_has_length && !plan.trailers;
    let length = plan.answer_has_length.then_some(body.len() as u64);
    stream.send_head(200, &reply, length, ends_alone && body.is_empty())?;
    let mut sent = 0;
    while sent < body.len() {
        if let Some((after, by_word)) = plan.server_gives_up
            && sent >= after
        {
            if by_word {
                stream.abort();
            }
            return Ok(());
        }
        // As from a server, the body comes in pieces.
        let piece = &body[sent..body.len().min(sent + 20_000)];
        let ends = ends_alone && sent + piece.len() == body.len();
        let length = poll_fn(|cx| stream.poll_send(cx, piece, plan.chunk, ends)).await?;
        report.check(length > 0, format_args!("nothing was sent"));
        sent += length;
    }
    stream.end(&trailers)
}

async fn read_body(stream: &mut Stream, plan: &Plan, report: &Report) -> io::Result<()> {
    let mut body = Vec::new();
    loop {
        let mut buffer = Buffer::take();
        if poll_fn(|cx| stream.poll_body(cx, &mut buffer)).await? == 0 {
            break;
        }
        body.extend_from_slice(buffer.unread());
    }
    report.check(body == content(plan.index, plan.body), format_args!("the body of {plan:?}"));
    let mut trailers = Fields::default();
    poll_fn(|cx| stream.poll_trailers(cx, &mut trailers)).await?;
    report.check(trailers.is_empty() != plan.trailers, format_args!("the trailers of {plan:?}"));
    Ok(())
}

/// Sends a request. Returns whether the whole response has been received.
async fn ask(mut requests: SendRequest<Bytes>, plan: &Plan, report: &Report) -> Result<bool, h2::Error> {
    let mut request = http::Request::post(format!("http://a.test/{}", plan.index));
    if plan.has_length {
        request = request.header("content-length", plan.body);
    }
    let has_body = plan.body > 0 || plan.trailers;
    let request = request.header("x-more", "z".repeat(plan.index % 300)).body(()).unwrap();
    let (response, mut out) = requests.send_request(request, !has_body)?;
    // The response may arrive before the whole request has been sent.
    let body = content(plan.index, plan.body);
    let trailers = plan.trailers;
    let sending = async move {
        let mut sent = 0;
        while sent < body.len() {
            out.reserve_capacity(body.len() - sent);
            let Some(capacity) = poll_fn(|cx| out.poll_capacity(cx)).await else { return out };
            let Ok(capacity) = capacity else { return out };
            let piece = Bytes::copy_from_slice(&body[sent..body.len().min(sent + capacity)]);
            sent += piece.len();
            if out.send_data(piece, sent == body.len() && !trailers).is_err() {
                return out;
            }
        }
        if trailers {
            let mut map = HeaderMap::new();
            map.insert("x-sum", "7".parse().unwrap());
            let _ = out.send_trailers(map);
        }
        out
    };
    let receiving = async {
        let response = response.await?;
        report.check(response.headers()["x-index"] == plan.index.to_string(), format_args!("the head of {plan:?}"));
        let mut incoming = response.into_body();
        let mut got = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece?;
            incoming.flow_control().release_capacity(piece.len())?;
            got.extend_from_slice(&piece);
            if plan.client_gives_up.is_some_and(|after| got.len() >= after) {
                return Ok::<bool, h2::Error>(false);
            }
        }
        let trailers = incoming.trailers().await?;
        report.check(trailers.is_some() == plan.trailers, format_args!("the trailers to {plan:?}"));
        report.check(got == content(plan.index, plan.answer), format_args!("the answer to {plan:?}"));
        Ok(true)
    };
    let (mut sending, mut receiving) = (pin!(sending), pin!(receiving));
    let mut sent = None;
    let answered = poll_fn(|cx| {
        if sent.is_none()
            && let Poll::Ready(out) = sending.as_mut().poll(cx)
        {
            sent = Some(out);
        }
        receiving.as_mut().poll(cx)
    })
    .await?;
    if !answered && let Some(out) = &mut sent {
        out.send_reset(h2::Reason::CANCEL);
    }
    Ok(answered)
}

async fn ask_all(peer: Peer, mut random: Random, plans: Rc<Vec<Plan>>, ends_early: bool, report: Rc<Report>) {
    let mut builder = h2::client::Builder::new();
    builder.enable_push(false);
    // The limit until the client has received the server's SETTINGS.
    builder.initial_max_send_streams(1);
    builder.initial_window_size(random.pick(&[100, 5_000, 65_535, 1 << 20]));
    builder.initial_connection_window_size(random.pick(&[65_535, 1 << 24]));
    builder.max_frame_size(random.pick(&[16_384, 1 << 20]));
    builder.header_table_size(random.pick(&[0, 100, 4_096, 65_536]));
    let (requests, connection) = builder.handshake::<_, Bytes>(Wire(peer)).await.expect("a connection");
    event_loop::spawn(async move { drop(connection.await) });
    let left = Rc::new(Cell::new(plans.len()));
    for index in 0..plans.len() {
        let Ok(requests) = requests.clone().ready().await else {
            report.check(ends_early, format_args!("no more requests"));
            break;
        };
        let (plans, report, left) = (Rc::clone(&plans), Rc::clone(&report), Rc::clone(&left));
        event_loop::spawn(async move {
            let plan = &plans[index];
            match ask(requests, plan, &report).await {
                Ok(whole) => report.answered.set(report.answered.get() + usize::from(whole)),
                Err(error) => {
                    // A body that is not read is answered with RST_STREAM, which the client may take for an error.
                    let is_expected = plan.server_gives_up.is_some() || ends_early || plan.early && plan.body > 0;
                    report.check(is_expected, format_args!("{error} for {plan:?}"));
                }
            }
            left.set(left.get() - 1);
        });
        if random.percent(20) {
            event_loop::let_others_run().await;
        }
    }
    drop(requests);
}

fn converse(seed: u64) {
    let mut random = Random::new(seed);
    let count = random.between(1, 40) as usize;
    let plans: Rc<Vec<Plan>> = Rc::new((0..count).map(|index| plan(index, &mut random)).collect());
    let settings = Settings {
        streams: random.between(1, 20) as u32,
        window: random.pick(&[1_000, 65_536, 300_000]),
        head: 20_000,
    };
    let ends_after = random.percent(20).then(|| random.below(count as u64) as usize + 1);
    let report = Rc::new(Report::default());
    let told = Rc::clone(&report);
    simulation::run(seed, Conditions::default(), async move {
        let (client, server) = Peer::dial("192.0.2.1:1".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let (asked, random) = (Rc::clone(&plans), random.split());
        let client = ask_all(client, random, asked, ends_after.is_some(), Rc::clone(&told));
        event_loop::spawn(client);
        let connection = Connection::begin(Rc::new(server), None, settings).await.expect("a client");
        let shared = Rc::clone(&connection.shared);
        serve(connection, plans, ends_after, Rc::clone(&told)).await;
        // The tasks that serve requests notice that the connection has ended.
        for _ in 0..10 {
            event_loop::let_others_run().await;
        }
        told.check(Rc::strong_count(&shared) == 1, format_args!("a request is still served"));
        told.check(shared.core.borrow().streams.len() == 0, format_args!("streams are left"));
        told.check(buffer::taken() == 0, format_args!("buffers are held"));
        told.finished.set(true);
    });
    assert_eq!(*report.faults.borrow(), Vec::<String>::new());
    assert!(report.finished.get(), "the conversation did not end");
    assert!(report.answered.get() > 0 || ends_after.is_some() || count < 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_conversation_is_as_planned(seed: u64) {
        converse(seed);
    }
}

/// Runs `count` downloads at the same time; the client's windows do not limit them. Returns how many bytes of each had
/// been sent when the first one was complete.
fn downloads(count: usize, length: usize) -> Vec<usize> {
    let sent: Rc<Vec<Cell<usize>>> = Rc::new((0..count).map(|_| Cell::new(0)).collect());
    let result: Rc<RefCell<Vec<usize>>> = Rc::default();
    let told = Rc::clone(&result);
    simulation::run(1, Conditions::default(), async move {
        let (client, server) = Peer::dial("192.0.2.1:1".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        event_loop::spawn(async move {
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
            let (requests, connection) = builder.handshake::<_, Bytes>(Wire(client)).await.unwrap();
            event_loop::spawn(async move { drop(connection.await) });
            for _ in 0..count {
                let mut requests = requests.clone().ready().await.unwrap();
                let request = http::Request::get("http://a.test/").body(()).unwrap();
                let (response, _) = requests.send_request(request, true).unwrap();
                event_loop::spawn(async move {
                    let mut incoming = response.await.unwrap().into_body();
                    while let Some(Ok(piece)) = incoming.data().await {
                        incoming.flow_control().release_capacity(piece.len()).unwrap();
                    }
                });
            }
        });
        let settings = Settings { streams: 100, window: 65_536, head: 20_000 };
        let mut connection = Connection::begin(Rc::new(server), None, settings).await.unwrap();
        let mut served = 0;
        poll_fn(|cx| {
            connection.begin_turn();
            while let Some(Ok((_, mut stream))) = ready!(connection.poll_request(cx)) {
                let (sent, told, index) = (Rc::clone(&sent), Rc::clone(&told), served);
                served += 1;
                event_loop::spawn(async move {
                    stream.send_head(200, &Fields::default(), None, false).unwrap();
                    let piece = vec![7; 100_000];
                    while sent[index].get() < length {
                        let wrote = poll_fn(|cx| stream.poll_send(cx, &piece, usize::MAX, false)).await.unwrap();
                        sent[index].set(sent[index].get() + wrote);
                    }
                    if told.borrow().is_empty() {
                        told.replace(sent.iter().map(Cell::get).collect());
                    }
                    stream.end(&Fields::default()).unwrap();
                });
            }
            Poll::Ready(())
        })
        .await;
    });
    Rc::try_unwrap(result).unwrap().into_inner()
}

#[test]
fn downloads_go_on_side_by_side() {
    for count in 1..=8 {
        let sent = downloads(count, 2_000_000);
        assert!(sent.len() == count && sent.iter().all(|sent| *sent > 500_000), "{sent:?}");
    }
}
