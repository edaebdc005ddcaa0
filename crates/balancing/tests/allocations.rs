//! Picking and completing allocate nothing, and tables of many servers stay small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Counter;
use std::sync::Arc;

use balanza_balancing::{
    Decided, Driver, Fleet, Member, Outcome, Report, ServerSpec, ServerState, Shadow, ShadowDriver, Start, Tried,
};

#[path = "conformance/forms.rs"]
mod forms;

use forms::forms;

/// Counts the allocations of each thread, and the bytes that it has taken and not given back.
struct Counting;

thread_local! {
    static COUNT: Counter<u64> = const { Counter::new(0) };
    static BYTES: Counter<i64> = const { Counter::new(0) };
}

fn count(bytes: i64) {
    COUNT.with(|c| c.set(c.get() + u64::from(bytes > 0)));
    BYTES.with(|b| b.set(b.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn server(i: u32, weight: u32) -> (ServerSpec, Arc<ServerState>) {
    let spec = ServerSpec { weight, ..ServerSpec::new(&format!("10.{}.{}:80", i >> 8, i & 255)) };
    (spec, Arc::new(ServerState::new()))
}

#[test]
fn overload_allocates_nothing() {
    use balanza_balancing::overload::{Concurrency, Hedge, Outliers, RetryBudget, Settings, Verdict, find};

    let fleet = Fleet::new(&Default::default(), (0..20).map(|i| server(i, 1)).collect()).unwrap();
    let settings = |name| Settings::new(find(name).unwrap(), &[]).unwrap();
    let outliers = Outliers::new(&settings("outlier"), &fleet, None);
    let concurrency = Concurrency::new(&settings("concurrency"), &fleet, None);
    let budget = RetryBudget::new(&settings("retry_budget"));
    let hedge = Hedge::new(&settings("hedge"));
    outliers.begin();
    concurrency.begin();
    let before = COUNT.with(Counter::get);
    let mut changes = 0;
    // Ejections, their ends, comparisons and measurements among them.
    for n in 0..200_000u64 {
        let (now, member) = (n * 1_000_000, Member((n % 20) as u32));
        outliers.tick(now, &mut |_| changes += 1);
        budget.request(now);
        let verdict = if n % 20 == 3 || n % 7 == 0 { Verdict::Bad } else { Verdict::Good(Some(n)) };
        match outliers.probe(now) {
            Some(probed) => outliers.complete(now, probed, verdict, true, &mut |_| changes += 1),
            None => outliers.complete(now, member, verdict, false, &mut |_| changes += 1),
        }
        concurrency.complete(now, member, (n % 5) as u32, 1_000_000, verdict == Verdict::Bad);
        budget.retry(now);
        hedge.delay(now);
        hedge.answered(n);
    }
    assert_eq!(COUNT.with(Counter::get) - before, 0);
    assert!(changes > 3 && budget.refused() > 0);
}

#[test]
fn the_steady_state_allocates_nothing() {
    for spec in forms() {
        for n in [3u32, 20, 500] {
            let mut driver = Driver::new(
                Arc::new(Fleet::new(&spec, (0..n).map(|i| server(i, 1 + i % 3)).collect()).unwrap()),
                1,
                Start::default(),
            );
            let (mut tried, mut probes) = (Tried::default(), Vec::new());
            let mut run = |from: u64, to: u64| {
                for now in (from..to).map(|i| i * 1_000_000) {
                    tried.clear();
                    let attempts = if now % 7 == 0 { 3 } else { 1 };
                    for attempt in 1..=attempts {
                        let key = (now / 1_000_000 % 3_000).to_le_bytes();
                        // Requests that belong to a server, requests that are explained, and all the others.
                        let found = match now / 1_000_000 % 11 {
                            3 => {
                                let member = Member((now % u64::from(n)) as u32);
                                driver.claim(now, member, &mut tried, true).map(|()| member).ok()
                            }
                            5 => driver.pick_explained(now, &key[..4], &mut tried, &mut Default::default()).ok(),
                            _ => driver.pick(now, &key[..4], &mut tried).ok(),
                        };
                        let Some(member) = found else { break };
                        let outcome = if attempt < attempts { Outcome::Failure } else { Outcome::Success };
                        let time = Some(1_000_000);
                        let report = Report { outcome, header_time: time, last_byte_time: time, bytes: 10 };
                        driver.complete(now, member, &report);
                    }
                    driver.take_probes(now, &mut probes);
                    for probe in &probes {
                        driver.probed(now, *probe, 1, 1_000_000);
                    }
                }
            };
            run(0, 1_000);
            let before = COUNT.with(Counter::get);
            run(1_000, 15_000);
            assert!(before > 0, "nothing is counted");
            assert_eq!(COUNT.with(Counter::get) - before, 0, "{spec:?}, {n} servers");
        }
    }
}

#[test]
fn a_shadow_allocates_nothing() {
    for spec in forms() {
        for n in [3u32, 40] {
            let servers = (0..n).map(|i| server(i, 1 + i % 3)).collect();
            let fleet = Arc::new(Fleet::new(&Default::default(), servers).unwrap());
            let shadow = Arc::new(Shadow::new(&spec, &fleet, None).unwrap());
            let mut driver = Driver::new(fleet, 1, Start::default());
            let mut beside = ShadowDriver::new(shadow.clone(), 1, Start::default());
            let mut tried = Tried::default();
            let mut run = |from: u64, to: u64| {
                for i in from..to {
                    let (now, key) = (i * 1_000_000, (i % 3_000).to_le_bytes());
                    tried.clear();
                    let choice = beside.choose(now, &key[..4], &mut tried, || now);
                    let Ok(member) = driver.pick(now, b"", &mut tried) else { continue };
                    beside.dispatched(now, member, choice, Decided::Algorithm);
                    let time = Some(1_000_000);
                    let report =
                        Report { outcome: Outcome::Success, header_time: time, last_byte_time: time, bytes: 10 };
                    beside.header(now, member, 1_000_000);
                    beside.latency(now, member, 0, 1_000_000);
                    driver.complete(now, member, &report);
                    beside.complete(now, member, &report);
                }
            };
            run(0, 1_000);
            let before = COUNT.with(Counter::get);
            run(1_000, 9_000);
            assert_eq!(COUNT.with(Counter::get) - before, 0, "{spec:?}, {n} servers");
            assert_eq!(shadow.counts().picks, 9_000);
        }
    }
}

/// What a fleet of 100,000 servers of weight 1 and one worker's part of it take, the servers' states and names included. Most
/// take the points of consistent hashing, 62 MiB, and the states, 24 MiB.
#[test]
fn many_servers_take_little_memory() {
    const MEBIBYTE: f64 = 1_048_576.0;
    let mut above = Vec::new();
    for spec in forms() {
        let before = BYTES.with(Counter::get);
        let servers = (0..100_000).map(|i| server(i, 1)).collect();
        let fleet = Arc::new(Fleet::new(&spec, servers).unwrap());
        let mut driver = Driver::new(fleet, 1, Start::default());
        let found = driver.pick(1, b"abcd", &mut Tried::default());
        let mebibytes = (BYTES.with(Counter::get) - before) as f64 / MEBIBYTE;
        assert!(found.is_ok() && mebibytes > 5.0, "{spec:?}: counted {mebibytes:.1} MiB");
        if mebibytes > 108.0 {
            above.push(format!("{spec:?}: {mebibytes:.1} MiB"));
        }
    }
    assert!(above.is_empty(), "{}", above.join("\n"));
}
