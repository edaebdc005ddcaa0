//! Picking and completing allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Counter;
use std::sync::Arc;

use balanza_balancing::registry::{Spec, entries};
use balanza_balancing::{Cell, Driver, Fleet, Outcome, Report, ServerSpec, Start, Tried};

/// Counts the allocations of each thread.
struct Counting;

thread_local!(static COUNT: Counter<u64> = const { Counter::new(0) });

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_steady_state_allocates_nothing() {
    for entry in entries() {
        let forms: &[&[(&str, &str)]] = match entry.name {
            "hash" => &[&[], &[("consistent", "on")]],
            "two_choices" => &[&[], &[("by", "header"), ("choices", "3")]],
            "least_time" => &[&[], &[("by", "last_byte"), ("inflight", "on")]],
            _ => &[&[]],
        };
        for (parameters, n) in forms.iter().flat_map(|p| [3u32, 20, 500].map(|n| (p, n))) {
            let spec = Spec::new(entry, parameters).unwrap();
            let server = |i: u32| ServerSpec { weight: 1 + i % 3, ..ServerSpec::new(&format!("s{i}:80")) };
            let servers = (0..n).map(|i| (server(i), Arc::new(Cell::new()))).collect();
            let mut driver = Driver::new(Arc::new(Fleet::new(&spec, servers).unwrap()), 1, Start::default());
            let mut tried = Tried::default();
            let mut run = |from: u64, to: u64| {
                for now in (from..to).map(|i| i * 1_000_000) {
                    tried.clear();
                    let attempts = if now % 7 == 0 { 3 } else { 1 };
                    for attempt in 1..=attempts {
                        let Ok(member) = driver.pick(now, &now.to_le_bytes()[..4], &mut tried) else { break };
                        let outcome = if attempt < attempts { Outcome::Failure } else { Outcome::Success };
                        let time = Some(1_000_000);
                        let report = Report { outcome, header_time: time, last_byte_time: time, bytes: 10 };
                        driver.complete(now, member, &report);
                    }
                }
            };
            run(0, 1_000);
            let before = COUNT.with(Counter::get);
            run(1_000, 20_000);
            assert_eq!(COUNT.with(Counter::get) - before, 0, "{spec:?}, {n} servers");
        }
    }
}
