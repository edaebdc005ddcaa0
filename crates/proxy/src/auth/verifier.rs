//! Verifies passwords by slow hashes in threads of their own.

use std::cell::RefCell;
use std::collections::HashSet;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{panic, thread};

use aws_lc_rs::hmac;
use tokio::sync::oneshot;

use super::htpasswd::{self, Unknown};

/// How many threads there are at most. They have nothing to do but to compute.
const MOST_THREADS: usize = 4;
/// How many passwords wait at most: a client that sends many wrong ones must not fill the memory.
const MOST_WAITING: usize = 1024;
/// How many right passwords a worker remembers.
const MOST_KNOWN: usize = 1024;

/// Why it is not known whether a password is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unverified {
    /// The hash is of a kind that is not known, or malformed.
    Unknown,
    /// Too many passwords wait to be verified.
    Busy,
}

impl From<Unknown> for Unverified {
    fn from(Unknown: Unknown) -> Unverified {
        Unverified::Unknown
    }
}

struct Task {
    hash: Vec<u8>,
    password: Vec<u8>,
    answer: oneshot::Sender<Result<bool, Unknown>>,
}

/// What identifies a hash with the password that it is of; only this process can compute it.
type Proof = [u8; 32];

thread_local! {
    static KNOWN: RefCell<HashSet<Proof>> = RefCell::default();
}

/// Whether the hash is that of the password.
///
/// # Errors
/// The hash is of a kind that is not known, or too many passwords wait.
pub async fn verify(hash: &[u8], password: &[u8]) -> Result<bool, Unverified> {
    if !htpasswd::is_slow(hash) {
        return Ok(htpasswd::verify(hash, password)?);
    }
    let proof = proof(hash, password);
    if proof.is_some_and(|proof| KNOWN.with_borrow(|known| known.contains(&proof))) {
        return Ok(true);
    }
    let Some(queue) = queue() else { return Ok(htpasswd::verify(hash, password)?) };
    let (answer, answered) = oneshot::channel();
    let task = Task { hash: hash.to_vec(), password: password.to_vec(), answer };
    queue.try_send(task).map_err(|_| Unverified::Busy)?;
    let right = answered.await.map_err(|_| Unverified::Busy)??;
    if let Some(proof) = proof.filter(|_| right) {
        KNOWN.with_borrow_mut(|known| {
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(proof);
        });
    }
    Ok(right)
}

fn proof(hash: &[u8], password: &[u8]) -> Option<Proof> {
    static SECRET: OnceLock<Option<hmac::Key>> = OnceLock::new();
    let random = || hmac::Key::generate(hmac::HMAC_SHA256, &aws_lc_rs::rand::SystemRandom::new()).ok();
    let key = SECRET.get_or_init(random).as_ref()?;
    // Neither has a NUL.
    let mut context = hmac::Context::with_key(key);
    context.update(hash);
    context.update(&[0]);
    context.update(password);
    context.sign().as_ref().try_into().ok()
}

/// Where the threads take their tasks from; none without threads.
fn queue() -> Option<&'static SyncSender<Task>> {
    static QUEUE: OnceLock<Option<SyncSender<Task>>> = OnceLock::new();
    QUEUE.get_or_init(start).as_ref()
}

fn start() -> Option<SyncSender<Task>> {
    let (queue, tasks) = sync_channel(MOST_WAITING);
    let tasks = Arc::new(Mutex::new(tasks));
    let count = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let spawn = |_| {
        let tasks = Arc::clone(&tasks);
        thread::Builder::new().name("passwords".into()).spawn(move || work(&tasks)).is_ok()
    };
    let started = (0..count).filter(|number| spawn(*number)).count();
    (started > 0).then_some(queue)
}

fn work(tasks: &Mutex<Receiver<Task>>) {
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        // A request that has ended needs no answer.
        if !task.answer.is_closed() {
            // A panic must not end the thread, which others need.
            let verified = panic::catch_unwind(|| htpasswd::verify(&task.hash, &task.password));
            let _ = task.answer.send(verified.unwrap_or(Err(Unknown)));
        }
    }
}
