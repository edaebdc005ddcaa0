//! How far apart two cores are: prints the nanoseconds that a cache line takes from one to the other and back.
//!
//! Half of a proxy's cost in the kernel is the fetching of lines that the clients' core wrote last. A virtual machine's
//! cores may share a cache now and not ten seconds later, which doubles the cost of a request, so the benchmark asks
//! before and after every sample and compares only samples from the same distance.
//!
//! `bench-distance CORE CORE`
#![forbid(unsafe_code)]

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BATCHES: usize = 101;
const TURNS_PER_BATCH: u64 = 200;

/// The line that travels, alone in its block of memory: neighbours are fetched in pairs.
#[repr(align(256))]
struct Ball(AtomicU64);

impl Ball {
    fn wait_for(&self, turn: u64) {
        while self.0.load(Ordering::Acquire) != turn {
            std::hint::spin_loop();
        }
    }
}

fn pin(core: usize) -> nix::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
}

fn measure(here: usize, there: usize) -> nix::Result<f64> {
    let ball = Ball(AtomicU64::new(0));
    let turns = BATCHES as u64 * TURNS_PER_BATCH;
    pin(here)?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = pin(there);
            for turn in 0..turns {
                ball.wait_for(2 * turn + 1);
                ball.0.store(2 * turn + 2, Ordering::Release);
            }
            pinned
        });
        let mut batches: Vec<f64> = (0..BATCHES as u64)
            .map(|batch| {
                let start = Instant::now();
                for turn in batch * TURNS_PER_BATCH..(batch + 1) * TURNS_PER_BATCH {
                    ball.0.store(2 * turn + 1, Ordering::Release);
                    ball.wait_for(2 * turn + 2);
                }
                start.elapsed().as_nanos() as f64 / TURNS_PER_BATCH as f64
            })
            .collect();
        other.join().expect("the other thread does not panic")?;
        // The lower quartile: a batch in which either thread lost its core says nothing about the distance.
        batches.sort_by(f64::total_cmp);
        Ok(batches[BATCHES / 4])
    })
}

fn main() {
    let cores: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [here, there] = cores[..] else {
        eprintln!("usage: bench-distance CORE CORE");
        std::process::exit(2);
    };
    if here == there {
        println!("0.0");
        return;
    }
    match measure(here, there) {
        Ok(nanoseconds) => println!("{nanoseconds:.1}"),
        Err(error) => {
            eprintln!("bench-distance: {error}");
            std::process::exit(1);
        }
    }
}
