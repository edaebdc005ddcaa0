//! What the event loop promises to sockets and tasks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;
use crate::timer::Timer;

fn run_here(main: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A panic in `main` ends that task, and not the loop.
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), run(main)).await });
    ended.expect("main ends").unwrap();
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

/// Wakes itself so many times.
async fn take_turns(count: usize) {
    let mut left = count;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn what_is_readable_is_reported_until_it_is_read_and_the_end_for_ever() {
    run_here(async {
        let (mut near, mut far) = pair();
        let registration = Registration::new(&near).unwrap();
        far.write_all(b"ab").unwrap();
        poll_fn(|cx| registration.poll_readable(cx)).await;
        assert!(registration.is_readable());
        let mut bytes = [0; 8];
        assert_eq!(near.read(&mut bytes).unwrap(), 2);
        registration.clear_readable();
        assert!(!registration.is_readable());
        let begun = Instant::now();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(far);
        });
        poll_fn(|cx| registration.poll_read_closed(cx)).await;
        assert!(begun.elapsed() >= Duration::from_millis(20));
        registration.clear_readable();
        assert!(registration.is_readable());
    });
}

#[test]
fn a_task_that_lets_others_run_lets_events_be_fetched() {
    let waited = Rc::new(Cell::new(usize::MAX));
    let result = Rc::clone(&waited);
    run_here(async move {
        let (near, mut far) = pair();
        let registration = Registration::new(&near).unwrap();
        let (turns, heard) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        let counted = Rc::clone(&turns);
        spawn(async move {
            for turn in 0..1000 {
                counted.set(turn);
                let_others_run().await;
            }
        });
        let (counted, seen) = (Rc::clone(&turns), Rc::clone(&heard));
        spawn(async move {
            poll_fn(|cx| registration.poll_readable(cx)).await;
            seen.set(Some(counted.get()));
        });
        // The tasks begin before there is anything to read.
        take_turns(2).await;
        let before = turns.get();
        far.write_all(b"a").unwrap();
        while heard.get().is_none() {
            let_others_run().await;
        }
        result.set(heard.get().unwrap() - before);
    });
    assert!(waited.get() <= 4, "{} turns of another task before the event was fetched", waited.get());
}

#[test]
fn a_full_socket_becomes_writable_when_it_is_read() {
    run_here(async {
        let (mut near, mut far) = pair();
        let registration = Registration::new(&near).unwrap();
        let chunk = [0; 65536];
        while near.write(&chunk).is_ok() {}
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            std::io::copy(&mut far, &mut std::io::sink()).unwrap()
        });
        poll_fn(|cx| registration.poll_writable(cx)).await;
        assert!(near.write(&chunk).is_ok());
        drop(near);
        assert!(reader.join().unwrap() > 65536);
    });
}

#[test]
fn timers_threads_and_tasks_of_the_runtime_wake_tasks() {
    run_here(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let seen = Rc::clone(&order);
        spawn(async move {
            receiver.await.unwrap();
            seen.borrow_mut().push("thread");
        });
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            sender.send(()).unwrap();
        });
        tokio::time::sleep(Duration::from_secs(5)).await;
        order.borrow_mut().push("timer");
        assert_eq!(*order.borrow(), ["thread", "timer"]);
        thread.join().unwrap();
    });
}

#[test]
fn a_busy_task_leaves_turns_to_timers_and_sockets() {
    run_here(async {
        let (near, mut far) = pair();
        let registration = Registration::new(&near).unwrap();
        spawn(take_turns(usize::MAX));
        tokio::time::sleep(Duration::from_millis(5)).await;
        far.write_all(b"a").unwrap();
        poll_fn(|cx| registration.poll_readable(cx)).await;
    });
}

#[test]
fn a_panic_ends_one_task_and_an_abort_drops_one() {
    struct Sign(Rc<Cell<u32>>);
    impl Drop for Sign {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let signs = Rc::clone(&dropped);
    run_here(async move {
        let sign = Sign(Rc::clone(&signs));
        spawn(async move {
            let _sign = sign;
            panic!("expected by the test");
        });
        let sign = Sign(Rc::clone(&signs));
        let waiting = spawn(async move {
            let _sign = sign;
            std::future::pending::<()>().await;
        });
        take_turns(3).await;
        assert_eq!(signs.get(), 1);
        waiting.abort();
        assert_eq!(signs.get(), 2);
        let sign = Sign(Rc::clone(&signs));
        spawn(async move {
            let _sign = sign;
            std::future::pending::<()>().await;
        });
    });
    // The end of the loop drops what is left.
    assert_eq!(dropped.get(), 3);
}

#[test]
fn places_are_used_again_and_late_wakers_wake_nobody_else() {
    run_here(async {
        let late = Rc::new(RefCell::new(None));
        let kept = Rc::clone(&late);
        spawn(poll_fn(move |cx| {
            *kept.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        }));
        take_turns(2).await;
        let polls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polls);
        // It has the place of the task that ended.
        spawn(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::Pending
        }));
        take_turns(2).await;
        late.borrow().as_ref().unwrap().wake_by_ref();
        take_turns(2).await;
        assert_eq!(polls.get(), 1);
    });
}

#[derive(Default)]
struct Notes(RefCell<Vec<&'static str>>);

impl Notes {
    fn add(&self, note: &'static str) {
        self.0.borrow_mut().push(note);
    }
}

impl Deferred for Notes {
    fn run(&self) {
        self.add("deferred");
    }
}

#[test]
fn what_is_deferred_is_done_when_the_woken_tasks_have_run() {
    run_here(async {
        let notes = Rc::new(Notes::default());
        let theirs = Rc::clone(&notes);
        spawn(async move { theirs.add("second") });
        defer(Rc::clone(&notes) as _);
        notes.add("first");
        take_turns(1).await;
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*notes.0.borrow(), ["first", "second", "deferred"]);
    });
}

#[test]
fn what_a_task_of_the_runtime_defers_is_done_while_the_loop_would_sleep() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let notes = Rc::new(Notes::default());
        let theirs = Rc::clone(&notes);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            defer(theirs as _);
        });
        let main = async {
            let (near, _far) = pair();
            let registration = Registration::new(&near).unwrap();
            poll_fn(|cx| registration.poll_readable(cx)).await;
        };
        let served = tokio::time::timeout(Duration::from_secs(2), run(main)).await;
        assert!(served.is_err(), "nothing was written");
        assert_eq!(*notes.0.borrow(), ["deferred"]);
    });
}

/// Asks for a turn and returns how often the other task had run when it came.
async fn heavy(ran: Rc<Cell<usize>>) -> usize {
    let mut turn = HeavyTurn::default();
    poll_fn(|cx| turn.poll(cx)).await;
    ran.get()
}

#[test]
fn other_tasks_run_between_turns_of_heavy_work() {
    const HEAVY: usize = 100;
    run_here(async {
        let (ran, turns) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        for _ in 0..HEAVY {
            let (ran, turns) = (Rc::clone(&ran), Rc::clone(&turns));
            spawn(async move {
                let at = heavy(ran).await;
                turns.borrow_mut().push(at);
            });
        }
        while turns.borrow().len() < HEAVY {
            ran.set(ran.get() + 1);
            take_turns(1).await;
        }
        for (index, at) in turns.borrow().iter().enumerate() {
            // One is paid for in advance, and the runs in which they ask pay for others.
            let paid = index.saturating_sub(1 + HEAVY / heavy::PRICE) * heavy::PRICE / 2;
            assert!(*at >= paid, "turn {index} came after {at} runs of another task, not after {paid}");
        }
        assert!(ran.get() <= 2 * HEAVY * heavy::PRICE, "{} runs: heavy work starves", ran.get());
    });
}

#[test]
fn heavy_work_waits_for_nothing_else() {
    run_here(async {
        let done = Rc::new(Cell::new(0));
        for _ in 0..100 {
            let done = Rc::clone(&done);
            spawn(async move {
                // A task may give up.
                let _ = poll_fn(|cx| Poll::Ready(HeavyTurn::default().poll(cx))).await;
                heavy(Rc::default()).await;
                done.set(done.get() + 1);
            });
        }
        while done.get() < 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            take_turns(1).await;
        }
    });
}

/// A burst of handshakes on a thread that has nothing else to do does not stop its timers.
#[test]
fn timers_fire_between_turns_of_heavy_work() {
    const HEAVY: usize = 100;
    run_here(async {
        let done = Rc::new(Cell::new(0));
        for _ in 0..HEAVY {
            let done = Rc::clone(&done);
            spawn(async move {
                heavy(Rc::default()).await;
                std::thread::sleep(Duration::from_millis(1));
                done.set(done.get() + 1);
            });
        }
        let (mut timer, due) = (Timer::default(), clock::after(Duration::from_millis(5)));
        poll_fn(|cx| if timer.poll_expired(cx, due) { Poll::Ready(()) } else { Poll::Pending }).await;
        assert!(done.get() < HEAVY, "the timer has waited for all");
        while done.get() < HEAVY {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}
