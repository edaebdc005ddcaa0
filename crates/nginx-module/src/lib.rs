//! The algorithms inside NGINX: what `balanza.h` declares, for the module in C beside it.
//!
//! The module owns what is NGINX's (directives, peers and their locks, retries); here is what is the library's. All `unsafe`
//! is in this crate: pointers of C are turned into references here, and [`arena`] places what the workers share.

mod arena;
mod upstream;

use std::fmt::Display;
use std::slice;

use balanza_balancing::registry::{Host, Key, Method, Spec};
use balanza_balancing::{Member, Outcome, Report, ServerSpec, Start, Tried};

use arena::Arena;
use upstream::{Peer, Upstream, Worker};

/// `balanza_text_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const u8,
    len: usize,
}

impl Text {
    /// # Safety
    /// `data` points to `len` bytes that outlive the result, or `len` is 0.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as promised.
        unsafe { list(self.data, self.len) }
    }
}

/// # Safety
/// `data` points to `len` values that outlive the result, or `len` is 0.
unsafe fn list<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { slice::from_raw_parts(data, len) }
}

/// `balanza_server_t`.
#[repr(C)]
pub struct Server {
    name: Text,
    address: Text,
    weight: u32,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: u64,
    backup: u8,
    down: u8,
}

impl Server {
    /// # Safety
    /// The texts are valid.
    unsafe fn peer(&self) -> Peer {
        // SAFETY: as promised.
        let (name, address) = unsafe { (self.name.bytes(), self.address.bytes()) };
        let server = ServerSpec {
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            backup: self.backup != 0,
            down: self.down != 0,
            ..ServerSpec::new(&String::from_utf8_lossy(name))
        };
        Peer { server, address: address.into() }
    }
}

/// `balanza_tried_t`.
#[repr(C)]
pub struct TriedWords([u64; 10]);

const _: () = assert!(size_of::<Tried>() <= size_of::<TriedWords>() && align_of::<Tried>() <= align_of::<TriedWords>());

/// `balanza_upstream_t`: an arena and what it holds.
pub struct SharedUpstream {
    arena: Arena,
    upstream: &'static Upstream,
}

/// Where an error's text goes.
struct Complaint {
    place: *mut u8,
    size: usize,
}

impl Complaint {
    fn write(&self, text: impl Display) {
        let text = text.to_string();
        let len = text.len().min(self.size.saturating_sub(1));
        if self.size > 0 {
            // SAFETY: the callers of this library give the size of what they point to, and `len` is less.
            unsafe {
                self.place.copy_from_nonoverlapping(text.as_ptr(), len);
                *self.place.add(len) = 0;
            }
        }
    }

    /// Writes the error, if it is one.
    fn ok<T, E: Display>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.write(error)).ok()
    }
}

fn into_raw<T>(value: Option<T>) -> *mut T {
    value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

/// The algorithm of these words, the name first, and its key.
fn method<'a>(words: &[&'a str]) -> Result<Method<'a>, String> {
    let method = Method::of_words(words)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let entry = method.spec.entry();
    let missing = match entry.host {
        Host::Any | Host::Idleness => None,
        Host::Reports => Some("loads that servers report"),
        Host::Probes => Some("probes of the servers"),
        Host::Program => Some("a program that it asks"),
    };
    if let Some(missing) = missing {
        let name = entry.name;
        return Err(format!("\"{name}\" needs {missing}, for which there is the Balanza proxy; NGINX has none"));
    }
    method.lacks_key().map_or(Ok(method), |error| Err(error.to_string()))
}

/// See `balanza.h`.
///
/// # Safety
/// The texts, `key` and `error` are valid, and the texts outlive what is written to `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_spec_create(
    words: *const Text,
    count: usize,
    key: *mut Text,
    error: *mut u8,
    error_size: usize,
) -> *mut Spec {
    // SAFETY: as promised.
    let words = unsafe { list(words, count) };
    // SAFETY: as promised.
    let texts: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(unsafe { word.bytes() })).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    let Some(method) = (Complaint { place: error, size: error_size }).ok(method(&texts)) else {
        return std::ptr::null_mut();
    };
    if let Some((word, _)) = method.key {
        let (Text { data, len }, skip) = (words[word], "key=".len());
        // SAFETY: as promised; a word with a key begins with "key=".
        unsafe { key.write(Text { data: data.add(skip), len: len - skip }) };
    }
    into_raw(Some(method.spec))
}

/// See `balanza.h`.
///
/// # Safety
/// `spec` is one that was created, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_spec_destroy(spec: *mut Spec) {
    // SAFETY: as promised.
    drop(unsafe { Box::from_raw(spec) });
}

/// See `balanza.h`.
///
/// # Safety
/// `spec` is one that was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_spec_key(spec: *const Spec) -> i32 {
    // SAFETY: as promised.
    let entry = unsafe { &*spec }.entry();
    match entry.key {
        Key::None => 0,
        Key::ClientAddress => 1,
        Key::Any => 2,
    }
}

/// See `balanza.h`.
///
/// # Safety
/// `spec` is one that was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_spec_goes_by_time(spec: *const Spec) -> i32 {
    // SAFETY: as promised.
    unsafe { &*spec }.goes_by_time().into()
}

/// See `balanza.h`.
///
/// # Safety
/// The pointers are valid; `before` is null or an upstream that was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_upstream_create(
    spec: *const Spec,
    servers: *const Server,
    count: usize,
    fixed: i32,
    workers_max: usize,
    before: *const SharedUpstream,
    error: *mut u8,
    error_size: usize,
) -> *mut SharedUpstream {
    let complaint = Complaint { place: error, size: error_size };
    // SAFETY: as promised.
    let (spec, servers, before) = unsafe { (&*spec, list(servers, count), before.as_ref()) };
    let Some(mut arena) = complaint.ok(Arena::new()) else { return std::ptr::null_mut() };
    let built = arena.scope(|| {
        // SAFETY: as promised. The copies end up in the arena.
        let peers: Vec<Peer> = servers.iter().map(|server| unsafe { server.peer() }).collect();
        Upstream::new(&spec.clone(), &peers, fixed != 0, workers_max, before.map(|b| b.upstream))
            .map(|upstream| &*Box::leak(Box::new(upstream)))
    });
    let Some(upstream) = complaint.ok(built) else { return std::ptr::null_mut() };
    if arena.overflowed() {
        complaint.write("no room in shared memory; the process may have a limit of addresses");
        return std::ptr::null_mut();
    }
    into_raw(Some(SharedUpstream { arena, upstream }))
}

/// See `balanza.h`.
///
/// # Safety
/// `upstream` is one that was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_upstream_ready(upstream: *mut SharedUpstream, workers: usize) {
    // SAFETY: as promised.
    let shared = unsafe { &mut *upstream };
    let upstream = shared.upstream;
    shared.arena.scope(|| upstream.ready(workers));
    shared.arena.close();
}

/// See `balanza.h`.
///
/// # Safety
/// `upstream` is one that was created, and not used afterwards, nor any worker of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_upstream_destroy(upstream: *mut SharedUpstream) {
    // SAFETY: as promised. The upstream itself goes with its arena.
    drop(unsafe { Box::from_raw(upstream) });
}

/// See `balanza.h`.
///
/// # Safety
/// The pointers are valid, and `upstream` outlives the worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_worker_create(
    upstream: *const SharedUpstream,
    servers: *const Server,
    count: usize,
    worker: usize,
    workers: usize,
    seed: u64,
    error: *mut u8,
    error_size: usize,
) -> *mut Worker {
    let complaint = Complaint { place: error, size: error_size };
    // SAFETY: as promised.
    let (upstream, servers) = unsafe { (&*upstream, list(servers, count)) };
    // SAFETY: as promised.
    let peers: Vec<Peer> = servers.iter().map(|server| unsafe { server.peer() }).collect();
    let start = Start { worker, workers: workers.max(1) };
    into_raw(complaint.ok(Worker::new(upstream.upstream, &peers, seed, start)))
}

/// See `balanza.h`.
///
/// # Safety
/// `worker` is one that was created, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_worker_destroy(worker: *mut Worker) {
    // SAFETY: as promised. What it shares with others stays: they hold it too.
    drop(unsafe { Box::from_raw(worker) });
}

/// See `balanza.h`.
///
/// # Safety
/// `worker` is one that was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_worker_recover(worker: *mut Worker, now: u64, member: u32) -> u32 {
    // SAFETY: as promised.
    unsafe { &mut *worker }.recover(now, Member(member))
}

/// See `balanza.h`.
///
/// # Safety
/// `tried` points to memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_tried_init(tried: *mut TriedWords) {
    // SAFETY: as promised; it is large enough and aligned, as asserted above.
    unsafe { tried.cast::<Tried>().write(Tried::default()) };
}

/// See `balanza.h`.
///
/// # Safety
/// `tried` is one that was initialised, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_tried_destroy(tried: *mut TriedWords) {
    // SAFETY: as promised.
    unsafe { tried.cast::<Tried>().drop_in_place() };
}

/// See `balanza.h`.
///
/// # Safety
/// `tried` is one that was initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_tried_forget(tried: *mut TriedWords, member: u32) {
    // SAFETY: as promised.
    unsafe { &mut *tried.cast::<Tried>() }.forget(Member(member));
}

/// See `balanza.h`.
///
/// # Safety
/// `worker` was created, `tried` initialised, and `key` points to `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_pick(
    worker: *mut Worker,
    now: u64,
    key: *const u8,
    key_len: usize,
    tried: *mut TriedWords,
) -> u32 {
    // SAFETY: as promised.
    let (worker, key, tried) = unsafe { (&mut *worker, list(key, key_len), &mut *tried.cast::<Tried>()) };
    worker.pick(now, key, tried).map_or(u32::MAX, |Member(m)| m)
}

/// See `balanza.h`.
#[unsafe(no_mangle)]
pub extern "C" fn balanza_outcome_of_status(status: u32) -> i32 {
    match Outcome::of_status(u16::try_from(status).unwrap_or(u16::MAX)) {
        Outcome::ErrorResponse => 3,
        _ => 0,
    }
}

/// See `balanza.h`.
///
/// # Safety
/// `worker` was created, and chose `member` for a request that is not complete yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn balanza_complete(
    worker: *mut Worker,
    now: u64,
    member: u32,
    outcome: i32,
    header_time: u64,
    last_byte_time: u64,
    bytes: u64,
) {
    let outcome = match outcome {
        0 => Outcome::Success,
        1 => Outcome::Failure,
        3 => Outcome::ErrorResponse,
        _ => Outcome::Neutral,
    };
    let known = |time: u64| Some(time).filter(|time| *time != u64::MAX);
    let report = Report { outcome, header_time: known(header_time), last_byte_time: known(last_byte_time), bytes };
    // SAFETY: as promised.
    unsafe { &mut *worker }.complete(now, Member(member), &report);
}
