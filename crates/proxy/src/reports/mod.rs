//! Puts the loads that servers report, from all kinds of sources, into the servers' states.
//!
//! One thread of the process asks, so that workers never wait for a report; it exists only while a configuration has
//! `load_report`. A report is a load (1.0 is a busy server) or an agent's words. Algorithms that go by the reported
//! load read it from the state; for all others it becomes the server's share of its weight, its free capacity in
//! percent. If no report of a server comes for `stale` intervals, its load, share and limit are reset; the states down,
//! draining and maintenance stay until the next report, as in HAProxy.

pub mod agent;
mod program;
mod server;
mod snmp;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use balanza_balancing::registry;
use balanza_config::model::{Level, LoadReport, LoadSource, ServerAddress, UpstreamServer};
use balanza_net::clock;
use balanza_net::shortage::describe;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::server::{Feed, Reported};
use crate::fault;
use crate::follower::{Duty, Generations};
use crate::log::error::ErrorWriter;
use crate::running_config::Generation;

/// How many servers are asked at a time.
const QUESTIONS_AT_A_TIME: usize = 256;

/// How often loads that workers take from responses are checked.
const WATCH_MIN: Duration = Duration::from_millis(10);
const WATCH_MAX: Duration = Duration::from_secs(1);

/// The pause after an answer that caused a panic, because it may come again.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Asks the servers of upstreams with `load_report`.
pub static REPORTS: Duty = Duty {
    name: "load reports",
    called: "the thread that asks for loads",
    purpose: "ask for load reports",
    is_needed: |generation| generation.upstreams().any(|upstream| !upstream.conf.reports.is_empty()),
    run: |generations| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
        runtime.block_on(obey(generations));
        Ok(())
    },
};

async fn obey(mut generations: Generations) {
    let mut servers: Vec<Rc<Reported>> = Vec::new();
    let mut tasks = JoinSet::new();
    let Some(mut generation) = generations.recv().await else { return };
    loop {
        servers = begin(&generation, &servers, &mut tasks);
        tokio::select! {
            newer = generations.recv() => match newer {
                Some(newer) => generation = newer,
                None => return,
            },
            () = panic_of(&mut tasks) => tokio::time::sleep(PANIC_PAUSE).await,
        }
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
    }
}

/// Waits until a task has panicked; the others may end.
async fn panic_of(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err_and(|error| error.is_panic()) {
            return;
        }
    }
    std::future::pending().await
}

/// Starts the tasks that ask the servers of a configuration. Servers that stay keep their reports; the reports of
/// servers that are not asked any more are reset.
fn begin(generation: &Generation, before: &[Rc<Reported>], tasks: &mut JoinSet<()>) -> Vec<Rc<Reported>> {
    let log = Rc::new(ErrorWriter::new(&generation.config.core.error_log, &generation.logs));
    let permits = Rc::new(Semaphore::new(QUESTIONS_AT_A_TIME));
    let mut all = Vec::new();
    for shared in generation.upstreams() {
        let upstream = &shared.conf;
        if upstream.reports.is_empty() {
            continue;
        }
        let membership = shared.membership();
        let reads_load = membership.balancing.balance.spec.entry().host == registry::Host::Reports;
        let states = membership.fleet.members().map(|member| membership.fleet.shared_cell(member));
        let servers: Vec<Rc<Reported>> = membership
            .servers
            .iter()
            .zip(states)
            .map(|(server, state)| Reported::new(upstream, reads_load, server, state, before))
            .collect();
        for (index, report) in upstream.reports.iter().enumerate() {
            let feeds = servers.iter().map(|server| Feed::new(server, index, report, &log)).collect();
            follow(&membership.servers, report, feeds, &permits, &log, tasks);
        }
        all.extend(servers);
    }
    for server in before.iter().filter(|server| !all.iter().any(|stays: &Rc<Reported>| stays.is(server))) {
        server.forget();
    }
    all
}

fn follow(
    servers: &[UpstreamServer],
    report: &LoadReport,
    feeds: Vec<Feed>,
    permits: &Rc<Semaphore>,
    log: &Rc<ErrorWriter>,
    tasks: &mut JoinSet<()>,
) {
    match &report.source {
        LoadSource::Program { argv } => {
            tasks.spawn_local(program::follow(argv.clone(), report.clone(), feeds, Rc::clone(log)));
        }
        LoadSource::Header { .. } => {
            tasks.spawn_local(watch(report.max_age(), feeds));
        }
        LoadSource::Agent { port, .. } | LoadSource::Snmp { port, .. } => {
            let count = feeds.len() as u32;
            for (index, (feed, server)) in feeds.into_iter().zip(servers).enumerate() {
                // Not all of them at once.
                let begin = report.interval * index as u32 / count.max(1);
                let Some(address) = ask_at(server, *port) else {
                    feed.trouble("no address to ask for its load: add report=HOST:PORT");
                    continue;
                };
                tasks.spawn_local(ask(address, report.clone(), feed, begin, Rc::clone(permits)));
            }
        }
    }
}

/// Where a server is asked.
fn ask_at(server: &UpstreamServer, port: u16) -> Option<ServerAddress> {
    if server.report.is_some() {
        return server.report.clone();
    }
    match &server.address {
        ServerAddress::Inet(address) => Some(ServerAddress::Inet(SocketAddr::new(address.ip(), port))),
        ServerAddress::Unix(_) => None,
    }
}

/// Follows the loads in responses, and notices when no more come.
async fn watch(max_age: Duration, feeds: Vec<Feed>) {
    loop {
        tokio::time::sleep((max_age / 4).clamp(WATCH_MIN, WATCH_MAX)).await;
        for feed in &feeds {
            feed.follow_cell(clock::now());
        }
    }
}

/// Asks a server again and again.
async fn ask(address: ServerAddress, report: LoadReport, feed: Feed, begin: Duration, permits: Rc<Semaphore>) {
    tokio::time::sleep(begin).await;
    let mut interval = tokio::time::interval(report.interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut session = None;
    loop {
        interval.tick().await;
        fault::point("report");
        let Ok(_permit) = permits.acquire().await else { return };
        let late = || "no answer in time".to_owned();
        match &report.source {
            LoadSource::Agent { send, .. } => {
                let answer = tokio::time::timeout(report.timeout, read_line(&address, send)).await;
                match answer.unwrap_or_else(|_| Err(late())) {
                    Ok(line) => feed.says(clock::now(), &agent::parse(&line)),
                    Err(trouble) => feed.trouble(&format!("agent at {address}: {trouble}")),
                }
            }
            LoadSource::Snmp { community, oid, full, .. } => {
                let answer = snmp::get(&mut session, &address, community, oid);
                match tokio::time::timeout(report.timeout, answer).await.unwrap_or_else(|_| Err(late())) {
                    Ok(value) => feed.load(clock::now(), value / full),
                    Err(trouble) => {
                        // The rest of this answer must not be read as the answer to the next question.
                        session = None;
                        feed.trouble(&format!("SNMP agent at {address}: {trouble}"));
                    }
                }
            }
            LoadSource::Header { .. } | LoadSource::Program { .. } => return,
        }
        feed.check(clock::now());
    }
}

/// An agent's line. It ends with a line end or with the connection.
async fn read_line(address: &ServerAddress, send: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error| format!("connect() failed {}", describe(&error));
    let line = match address {
        ServerAddress::Inet(address) => converse(TcpStream::connect(address).await.map_err(failed)?, send).await,
        ServerAddress::Unix(path) => converse(UnixStream::connect(path).await.map_err(failed)?, send).await,
    };
    match line {
        Ok(line) if line.trim_ascii().is_empty() => Err("closed the connection without an answer".into()),
        Ok(line) => Ok(line),
        Err(error) => Err(describe(&error)),
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, send: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(send).await?;
    let mut line = Vec::new();
    let mut stream = stream.take(agent::LINE_MAX as u64);
    while !line.contains(&b'\n') && stream.read_buf(&mut line).await? > 0 {}
    Ok(line)
}

/// Writes a message about a server's reports.
fn note(log: &ErrorWriter, level: Level, server: &Reported, message: std::fmt::Arguments<'_>) {
    log.write(level, format_args!("load report of \"{}\" in upstream \"{}\": {message}", server.name, server.upstream));
}
