//! Nanoseconds of a pick and its completion, for every algorithm of the registry, 3 to 100,000 servers, one and two
//! threads on shared states: `make bench-algorithms`, or `cargo bench -p balanza-balancing -- NAME…` for some.
//!
//! 64 requests are in flight for each thread, keys are 50,000, weights are 1; algorithms that share by weight are measured
//! with weights 5, 1, 2, 1 as well. Of many short rounds the least counts with one thread, so that other work on the
//! machine does not; with two the median does, as a round that the other thread slept through is cheap. Every server is
//! visited once before. Probes that an algorithm asks for are answered, and count; loads are reported between the rounds,
//! and do not.
//!
//! Writes target/bench/algorithms.csv; with `--docs` the tables in docs/algorithm-cost.md as well.

#![allow(clippy::disallowed_methods, reason = "it measures time and writes a file")]
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use balanza_balancing::registry::{Host, Share, Spec};
use balanza_balancing::{Driver, Fleet, Member, Outcome, Report, ServerSpec, ServerState, Start, Tried};

#[path = "../tests/conformance/forms.rs"]
mod forms;

use forms::{forms, label};

const SIZES: [u32; 6] = [3, 10, 100, 1_000, 10_000, 100_000];
const THREADS: [usize; 2] = [1, 2];
const EQUAL: &[u32] = &[1];
const WEIGHTS: &[u32] = &[5, 1, 2, 1];
const IN_FLIGHT: usize = 64;
const KEYS: u32 = 50_000;
const PICKS: u32 = 4_000;
/// Rounds, and as many more for each 10,000 servers: what does not fit the nearest cache is in reach again only some rounds
/// after other work has pushed it out.
const ROUNDS: usize = 40;

/// Nanoseconds that a choice may take: the number of servers, and the limit. Not for algorithms that are linear.
const BUDGETS: [(u32, f64); 2] = [(3, 60.0), (100_000, 300.0)];

const BEGIN: &str = "<!-- measured: make bench-algorithms -->\n";
const END: &str = "<!-- /measured -->";

/// What is measured: a form of an algorithm, with equal weights or with others.
struct Case {
    label: String,
    spec: Spec,
    weights: &'static [u32],
}

fn cases() -> Vec<Case> {
    let cases = forms().into_iter().flat_map(|spec| {
        let (label, by_weight) =
            (label(&spec), matches!(spec.entry().share, Share::Weights | Share::Groups | Share::Key));
        let weighted =
            by_weight.then(|| Case { label: format!("{label} weights"), spec: spec.clone(), weights: WEIGHTS });
        std::iter::once(Case { label, spec, weights: EQUAL }).chain(weighted)
    });
    cases.collect()
}

/// One thread's work.
struct Work {
    driver: Driver,
    /// Whether the algorithm asks for probes, and the servers it has asked for.
    asks: bool,
    probes: Vec<Member>,
    /// Whether it is told of latencies.
    hears_latencies: bool,
    tried: Tried,
    flying: [Option<Member>; IN_FLIGHT],
    count: u32,
}

impl Work {
    fn new(fleet: &Arc<Fleet>, worker: usize, workers: usize) -> Work {
        let driver = Driver::new(fleet.clone(), worker as u64, Start { worker, workers });
        let (asks, hears_latencies) = (driver.wants_probes(), driver.wants_latency());
        Work {
            driver,
            asks,
            hears_latencies,
            probes: Vec::new(),
            tried: Tried::default(),
            flying: [None; IN_FLIGHT],
            count: 0,
        }
    }

    fn now(&self) -> u64 {
        1_000_000_000 + u64::from(self.count) * 20_000
    }

    fn run(&mut self, picks: u32) {
        let mut key = *b"/images/0000.png";
        for _ in 0..picks {
            self.count += 1;
            let now = self.now();
            key[8..12].copy_from_slice(&(self.count.wrapping_mul(2_654_435_761) % KEYS).to_le_bytes());
            self.tried.clear();
            let member = self.driver.pick(now, black_box(&key), &mut self.tried).expect("someone");
            if self.asks {
                self.driver.take_probes(now, &mut self.probes);
                for probe in &self.probes {
                    self.driver.probed(now, *probe, self.count % 8, 1_000_000);
                }
            }
            let old = self.flying[self.count as usize % IN_FLIGHT].replace(member);
            if let Some(old) = old {
                let time = 1_000_000 + u64::from(old.0 % 7) * 10_000_000;
                let times = Some(time);
                if self.hears_latencies {
                    self.driver.latency(now, old, self.count % 8, time);
                }
                let report =
                    Report { outcome: Outcome::Success, header_time: times, last_byte_time: times, bytes: 200 };
                black_box(self.driver.complete(now, old, &report));
            }
        }
    }

    /// Nanoseconds of a choice in each round.
    fn rounds(&mut self, rounds: usize, mut between: impl FnMut(u64)) -> Vec<f64> {
        let mut results = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            between(self.now());
            let begin = Instant::now();
            self.run(PICKS);
            results.push(begin.elapsed().as_nanos() as f64 / f64::from(PICKS));
        }
        results.sort_unstable_by(f64::total_cmp);
        results
    }
}

fn measure(fleet: &Arc<Fleet>, threads: usize, reports: bool) -> f64 {
    let ready = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let rounds = ROUNDS * (1 + fleet.len() / 10_000);
    let work = |worker: usize| {
        let mut work = Work::new(fleet, worker, threads);
        let report = |now: u64| {
            if reports {
                for member in fleet.members() {
                    fleet.state(member).report_load(now, f64::from(member.0 % 10) / 10.0);
                }
            }
        };
        report(work.now());
        work.run(2_000 + fleet.len() as u32 / threads as u32);
        ready.fetch_add(1, SeqCst);
        while ready.load(SeqCst) < threads {
            std::hint::spin_loop();
        }
        let results = work.rounds(rounds, report);
        finished.fetch_add(1, SeqCst);
        // The other thread is measured beside this one to its end.
        while finished.load(SeqCst) < threads {
            work.run(100);
        }
        results[if threads == 1 { 0 } else { rounds / 2 }]
    };
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|worker| scope.spawn(move || work(worker))).collect();
        let mut results = vec![work(0)];
        results.extend(handles.into_iter().map(|handle| handle.join().expect("no panic")));
        results
    });
    results.into_iter().fold(0.0, f64::max)
}

fn fleet(Case { spec, weights, .. }: &Case, n: u32) -> Arc<Fleet> {
    let server = |i: u32| {
        let weight = weights[i as usize % weights.len()];
        ServerSpec { weight, ..ServerSpec::new(&format!("10.{}.{}.{}:80", i >> 16, i >> 8 & 255, i & 255)) }
    };
    let servers = (0..n).map(|i| (server(i), Arc::new(ServerState::new()))).collect();
    Arc::new(Fleet::new(spec, servers).expect("servers"))
}

struct Row {
    label: String,
    linear: bool,
    servers: u32,
    threads: usize,
    ns: f64,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from("algorithm,servers,threads,ns\n");
    for row in rows {
        let _ = writeln!(text, "{},{},{},{:.1}", row.label, row.servers, row.threads, row.ns);
    }
    text
}

fn table(rows: &[Row], threads: usize) -> String {
    let mut text =
        format!("| {} | 3 | 10 | 100 | 1,000 | 10,000 | 100,000 |\n", ["one thread", "two threads"][threads - 1]);
    text.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    for rows in rows.chunk_by(|a, b| a.label == b.label) {
        let states = rows.iter().filter(|row| row.threads == threads).map(|row| format!(" {:.0} |", row.ns));
        let linear = if rows[0].linear { " (linear)" } else { "" };
        let _ = writeln!(text, "| {}{linear} |{}", rows[0].label, states.collect::<String>());
    }
    text
}

fn write_docs(tables: &str) -> std::io::Result<()> {
    let file = root().join("docs/algorithm-cost.md");
    let text = std::fs::read_to_string(&file)?;
    let marks = "the marks of the tables in docs/algorithm-cost.md";
    let (before, rest) = text.split_once(BEGIN).expect(marks);
    let (_, after) = rest.split_once(END).expect(marks);
    std::fs::write(file, format!("{before}{BEGIN}{tables}{END}{after}"))
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let docs = arguments.iter().any(|a| a == "--docs");
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |case: &Case| wanted.is_empty() || wanted.iter().any(|w| case.label.contains(*w));
    let cases: Vec<Case> = cases().into_iter().filter(is_wanted).collect();
    let terminal = std::io::stderr().is_terminal();
    let mut rows = Vec::new();
    println!("{:40}{}", "ns, n =", SIZES.map(|n| format!("{n:>8}")).concat());
    for (number, case) in cases.iter().enumerate() {
        let Case { label, spec, .. } = case;
        let mut lines = THREADS.map(|threads| format!("{:40}", format!("{label}, {threads}")));
        for servers in SIZES {
            if terminal {
                eprint!("\r\x1b[K{} of {}: {label}, {servers} servers", number + 1, cases.len());
            }
            for (line, threads) in lines.iter_mut().zip(THREADS) {
                let reports = spec.entry().host == Host::Reports;
                let ns = measure(&fleet(case, servers), threads, reports);
                let _ = write!(line, "{ns:8.0}");
                rows.push(Row { label: label.clone(), linear: spec.entry().linear, servers, threads, ns });
            }
        }
        if terminal {
            eprint!("\r\x1b[K");
        }
        println!("{}", lines.join("\n"));
        std::io::stdout().flush()?;
    }
    let directory = root().join("target/bench");
    std::fs::create_dir_all(&directory)?;
    if wanted.is_empty() {
        std::fs::write(directory.join("algorithms.csv"), csv(&rows))?;
    }
    if docs && wanted.is_empty() {
        write_docs(&format!("{}\n{}", table(&rows, 1), table(&rows, 2)))?;
    }
    println!();
    for (servers, limit) in BUDGETS {
        let over = |row: &&Row| row.servers == servers && !row.linear && row.ns > limit;
        for row in rows.iter().filter(over) {
            let Row { label, threads, ns, .. } = row;
            println!("above {limit} ns at {servers} servers: {label}, {threads} threads: {ns:.0}");
        }
    }
    Ok(())
}
