//! The forwarding path under simulation: no process, no socket, no clock.
//!
//! A run is a worker with a configuration, servers and clients, all on one thread with a network in memory and virtual
//! time (`balanza_net::simulation`). A seed decides everything: the configuration, what is asked, what clients and servers do
//! wrong, and how the network delivers it. Servers and clients check what reaches them, and `ledger` knows what may have
//! become of each request. A run that violates something prints its seed:
//!
//! ```text
//! SIMULATION_SEED=17 cargo test -p balanza-proxy --lib simulation -- --nocapture
//! ```
//!
//! repeats it and prints all events. `SIMULATION_SECONDS=600` runs new seeds for so long.

mod client;
mod ledger;
mod operator;
mod plan;
mod scenario;
mod server;
mod wire;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use balanza_net::simulation::{self as net, Conditions, Random, Trace};
use balanza_net::{buffer, event_loop, memory, transport};

use self::client::Client;
use self::ledger::Ledger;
use self::operator::Operator;
use self::plan::{CLIENT, FILES, Knobs, content};
use crate::worker::{Place, Worker};

/// Runs of the test. They take ten to fifteen seconds on two cores.
const RUNS: u64 = 2000;

/// Virtual time in which clients must have come to an end, in seconds.
const LONGEST: u64 = 20_000;
/// Virtual time after that in which all connections must be closed.
const CLOSING: u64 = 200;

/// What a run came to.
struct Report {
    trace: Trace,
    violations: Vec<String>,
    errors: String,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The event loop catches panics of tasks; here they are kept.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = PANICS.try_with(|panics| panics.borrow_mut().push(panic.to_string()));
            print(panic);
        }));
    });
}

/// A directory with the files that clients ask for, and room for temporary ones.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("balanza-simulation-").tempdir().unwrap();
    for name in ["files", "client", "proxy"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    static CONTENTS: LazyLock<[Vec<u8>; FILES.len()]> =
        LazyLock::new(|| FILES.map(|length| content(length as u64, CLIENT, 0, length)));
    for (length, bytes) in FILES.iter().zip(&*CONTENTS) {
        std::fs::write(directory.path().join(format!("files/{length}")), bytes).unwrap();
    }
    directory
}

/// Performs the run of a seed, on a thread of its own, so that nothing is left of another.
fn run(seed: u64, keeps_trace: bool) -> Report {
    keep_panics();
    std::thread::Builder::new()
        .name(format!("seed {seed}"))
        .spawn(move || {
            let mut random = Random::new(seed);
            let knobs = Knobs::new(random.next());
            let places = scenario::places(&mut random);
            let ledger = Ledger::new(knobs, places);
            let conditions = Conditions {
                delay: random.pick(&[0, 1, 3, 30]),
                split: random.pick(&[0, 20, 60]),
                together: random.pick(&[0, 30, 60]),
                keeps_trace,
                ..Conditions::default()
            };
            let directory = directory();
            let log = directory.path().join("error.log");
            std::fs::write(&log, "").unwrap();
            let run = drive(Rc::clone(&ledger), random, directory.path().to_path_buf());
            let ended = Rc::new(Cell::new(false));
            let end = Rc::clone(&ended);
            let trace = net::run(seed, conditions, async move {
                run.await;
                end.set(true);
            });
            buffer::release();
            let mut violations = ledger.violations();
            violations.extend(PANICS.take().into_iter().map(|panic| format!("a panic: {panic}")));
            if !ended.get() {
                violations.push("the driver has not ended".to_owned());
            } else if memory::of_thread() != 0 {
                violations.push(format!("{} bytes are counted as held at the end", memory::of_thread()));
            }
            Report { trace, violations, errors: std::fs::read_to_string(log).unwrap_or_default() }
        })
        .unwrap()
        .join()
        .unwrap()
}

/// What happens in a run.
async fn drive(ledger: Rc<Ledger>, mut random: Random, directory: std::path::PathBuf) {
    let knobs = ledger.knobs.clone();
    let worker =
        Worker::new(Place { worker: 0, workers: 1, serial: 1, seed: random.next() }, std::sync::Arc::default());
    let mut operator = Operator::new(&ledger, &worker, directory);
    operator.configure(&mut random);
    let servers: Vec<_> = (0..knobs.servers)
        .map(|number| {
            let address = SocketAddr::from(scenario::server_address(number));
            event_loop::spawn(server::serve(Rc::clone(&ledger), number, address))
        })
        .collect();
    let clients = Rc::new(Cell::new(knobs.clients));
    for number in 1..=knobs.clients {
        let client = Client { ledger: Rc::clone(&ledger), worker: Rc::clone(&worker), number, random: random.split() };
        let clients = Rc::clone(&clients);
        event_loop::spawn(async move {
            client.run().await;
            clients.set(clients.get() - 1);
        });
    }
    // True for a configuration, false for a change of servers.
    let mut due: Vec<(u64, bool)> = (0..knobs.reloads).map(|_| (random.size(20), true)).collect();
    due.extend((0..knobs.changes).map(|_| (random.size(20), false)));
    let mut second = 0;
    let mut end = LONGEST;
    while second < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        second += 1;
        worker.tidy();
        for (_, configures) in due.extract_if(.., |(at, _)| *at <= second) {
            if configures { operator.configure(&mut random) } else { operator.change(&mut random) }
        }
        if clients.get() == 0 && due.is_empty() {
            if transport::open_connections() == 0 && net::open_ends() == 0 {
                break;
            }
            end = end.min(second + CLOSING);
        }
    }
    servers.into_iter().for_each(event_loop::TaskHandle::abort);
    // Watches over idle connections and the like.
    tokio::time::sleep(Duration::from_secs(1)).await;
    check_end(&ledger, clients.get(), &operator);
    ledger.check();
}

/// Nothing may be left when all clients have gone and all connections have been idle for long.
fn check_end(ledger: &Ledger, clients: u64, operator: &Operator) {
    let left = |what: &str, count: usize| {
        if count > 0 {
            ledger.violated(format_args!("{what} at the end: {count}"));
        }
    };
    left("clients", clients as usize);
    left("connections of the worker", transport::open_connections());
    left("ends of connections", net::open_ends());
    left("buffers in use", buffer::taken());
    // This one, the one that waits for it, and the network's.
    left("tasks", event_loop::tasks() - 3);
    left("requests in flight", operator.in_flight());
}

/// Runs a seed; true if nothing was violated.
fn is_sound(seed: u64) -> bool {
    let report = run(seed, false);
    if report.violations.is_empty() {
        return true;
    }
    println!("SIMULATION_SEED={seed} repeats this:");
    report.violations.iter().take(10).for_each(|violation| println!("  {violation}"));
    false
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs seeds on all processors, in their order, as long as there is one and none has failed.
fn run_seeds(next: impl Fn() -> Option<u64> + Sync) {
    let failures = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while failures.load(Relaxed) == 0
                    && let Some(seed) = next()
                {
                    failures.fetch_add(usize::from(!is_sound(seed)), Relaxed);
                }
            });
        }
    });
    assert_eq!(failures.into_inner(), 0, "seeds that failed");
}

#[test]
fn requests_and_responses_keep_to_the_rules() {
    if let Some(seed) = from_environment("SIMULATION_SEED") {
        let report = run(seed, true);
        report.trace.lines.iter().for_each(|line| println!("{line}"));
        println!("{}", report.errors);
        assert_eq!(report.violations, Vec::<String>::new());
        return;
    }
    let seeds = AtomicU64::new(0);
    if let Some(seconds) = from_environment("SIMULATION_SECONDS") {
        let (begun, first) = (Instant::now(), Random::new(u64::from(std::process::id())).next() >> 20);
        run_seeds(|| (begun.elapsed() < Duration::from_secs(seconds)).then(|| first + seeds.fetch_add(1, Relaxed)));
        println!("{} runs", seeds.into_inner());
        return;
    }
    run_seeds(|| Some(seeds.fetch_add(1, Relaxed)).filter(|seed| *seed < RUNS));
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..5 {
        let [first, second] = [(), ()].map(|()| run(seed, true));
        assert!(first.trace.lines.len() > 10);
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
