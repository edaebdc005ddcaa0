//! A worker's event loop: which sockets are ready, by epoll, and the tasks that wait for them.
//!
//! Timers, channels and whatever else a worker does belong to the tokio runtime that [`run`] is called in. Sockets and
//! the tasks of connections are served here, without the atomics that a runtime needs whose tasks may be woken from
//! anywhere. The runtime watches the loop's epoll descriptor, so that both sleep in one system call.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

use super::waker::{self, TaskId};
use super::watch;

/// Events fetched at once.
const BATCH: usize = 256;
/// Batches served before the runtime's timers and tasks get their turn.
const BATCHES: usize = 8;
/// A batch of at least so many events is probably followed by another: it is fetched without asking the runtime.
const BUSY: usize = 4;

/// Tasks run after a batch of events.
const TURNS: usize = 2 * BATCH;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Serves sockets and tasks until `main` has ended; all other tasks are dropped then. To be called in a tokio runtime,
/// once on a thread.
///
/// # Errors
/// No descriptors for the loop.
pub async fn run(main: impl Future<Output = ()> + 'static) -> io::Result<()> {
    let event_loop = current()?;
    let watched = watch::readable(Rc::clone(&event_loop.epoll))?;
    let ended = Rc::new(Cell::new(false));
    let end = Rc::clone(&ended);
    spawn(async move {
        main.await;
        end.set(true);
    });
    let serve = async {
        loop {
            let mut events = BUSY;
            for _ in 0..BATCHES {
                event_loop.run_woken_tasks();
                if ended.get() {
                    return Ok(());
                }
                if events < BUSY {
                    break;
                }
                events = event_loop.fetch_events()?;
            }
            if events >= BUSY || event_loop.has_woken_tasks() {
                tokio::task::yield_now().await;
            } else {
                poll_fn(|cx| event_loop.poll_news(cx, &watched)).await?;
            }
        }
    };
    // Tasks take turns by batches: the runtime's count of what one task may do is not for them.
    let served = tokio::task::coop::unconstrained(serve).await;
    event_loop.drop_tasks();
    served
}

/// Runs a task on this thread's loop. A panic ends that task and no other.
///
/// # Panics
/// When the system has no descriptor left for a loop that has not run yet.
pub fn spawn(task: impl Future<Output = ()> + 'static) -> TaskHandle {
    let event_loop = current().expect("an event loop");
    let id = event_loop.add_task(Box::pin(task));
    event_loop.wake(id);
    TaskHandle(id)
}

/// A task that was given to [`spawn`]; it goes on when this is dropped.
pub struct TaskHandle(TaskId);

impl TaskHandle {
    /// Drops the task, unless it has ended. A task cannot end itself this way.
    pub fn abort(self) {
        let task = LOOP.with(|it| it.get().and_then(|event_loop| event_loop.remove_task(self.0)));
        drop(task);
    }
}

/// A descriptor that the loop watches for as long as this lives, on behalf of one task at a time.
///
/// Closing the last copy of the descriptor ends the watch in the kernel.
pub struct Registration {
    source: Rc<Source>,
}

impl Registration {
    /// Begins to watch. What is ready already is reported at the loop's next turn.
    ///
    /// # Errors
    /// The system's limit of watched descriptors.
    pub fn new(fd: impl AsFd) -> io::Result<Registration> {
        let event_loop = current()?;
        let registration = Registration { source: event_loop.add_source() };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&*event_loop.epoll, fd, EventData::new_u64(registration.source.token), flags)?;
        Ok(registration)
    }

    /// Ends the watch of a descriptor that others keep open: closing it would not.
    pub fn unwatch(&self, fd: impl AsFd) {
        let _ = LOOP.try_with(|it| it.get().map(|event_loop| epoll::delete(&*event_loop.epoll, fd)));
    }

    /// Waits until there may be something to read.
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, READ)
    }

    /// Waits until there may be room to write.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, WRITE)
    }

    /// Waits until the peer has closed its side, whatever else it has sent.
    pub fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll(cx, READ_CLOSED)
    }

    /// Whether anything to read was reported since the last [`Registration::clear_readable`].
    pub fn is_readable(&self) -> bool {
        self.source.ready.get() & READ != 0
    }

    /// A read found nothing, or less than it asked for: the next event will tell of more.
    #[inline]
    pub fn clear_readable(&self) {
        let ready = self.source.ready.get();
        // The end of a stream can be read for ever.
        if ready & READ_CLOSED == 0 {
            self.source.ready.set(ready & !READ);
        }
    }

    /// A write found no room: the next event will tell when there is some.
    pub fn clear_writable(&self) {
        self.source.ready.set(self.source.ready.get() & !WRITE);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The thread's loop may be gone before the last socket.
        let _ = LOOP.try_with(|it| it.get().map(|event_loop| event_loop.remove_source(self.source.token)));
    }
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const READ_CLOSED: u8 = 4;

/// The readiness of one watched descriptor.
struct Source {
    /// What the kernel tells its events by: generation and place.
    token: u64,
    /// What has happened since it was last cleared.
    ready: Cell<u8>,
    /// What `waker` waits for.
    interest: Cell<u8>,
    waker: Cell<Option<Waker>>,
}

impl Source {
    #[inline]
    fn poll(&self, cx: &mut Context<'_>, what: u8) -> Poll<()> {
        if self.ready.get() & what != 0 {
            return Poll::Ready(());
        }
        self.waker.set(Some(cx.waker().clone()));
        self.interest.set(self.interest.get() | what);
        Poll::Pending
    }

    fn report(&self, flags: EventFlags) {
        let mut happened = 0;
        if flags.contains(EventFlags::IN) {
            happened |= READ;
        }
        if flags.contains(EventFlags::OUT) {
            happened |= WRITE;
        }
        if flags.contains(EventFlags::RDHUP) {
            happened |= READ | READ_CLOSED;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            happened |= READ | READ_CLOSED | WRITE;
        }
        self.ready.set(self.ready.get() | happened);
        if self.interest.get() & happened != 0 {
            self.interest.set(0);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A place in a table, used by one after the other.
struct Slot<T> {
    /// Tells its users apart.
    generation: u32,
    content: T,
}

/// A task's place.
#[derive(Default)]
struct TaskState {
    /// None while it runs.
    task: Option<Task>,
    /// There is a task, and it is to run.
    woken: bool,
}

struct EventLoop {
    epoll: Rc<OwnedFd>,
    thread: u16,
    remote: Arc<Remote>,
    events: RefCell<Vec<Event>>,
    sources: RefCell<Vec<Slot<Option<Rc<Source>>>>>,
    free_sources: RefCell<Vec<u32>>,
    tasks: RefCell<Vec<Slot<TaskState>>>,
    free_tasks: RefCell<Vec<u32>>,
    woken: RefCell<VecDeque<TaskId>>,
    /// The runtime's task in which the loop runs, while it waits.
    sleeper: Cell<Option<Waker>>,
}

thread_local! {
    static LOOP: OnceCell<Rc<EventLoop>> = const { OnceCell::new() };
}

/// This thread's loop.
fn current() -> io::Result<Rc<EventLoop>> {
    LOOP.with(|it| {
        if let Some(event_loop) = it.get() {
            return Ok(Rc::clone(event_loop));
        }
        let event_loop = Rc::new(EventLoop::new()?);
        Ok(Rc::clone(it.get_or_init(|| event_loop)))
    })
}

/// Makes a task run again if it is one of this thread's.
pub(super) fn wake_local(task: TaskId, thread: u16) -> bool {
    let woken = LOOP.try_with(|it| {
        let event_loop = it.get().filter(|event_loop| event_loop.thread == thread);
        event_loop.map(|event_loop| event_loop.wake(task)).is_some()
    });
    woken.unwrap_or(false)
}

impl EventLoop {
    fn new() -> io::Result<EventLoop> {
        let remote = Arc::new(Remote::default());
        Ok(EventLoop {
            epoll: Rc::new(epoll::create(CreateFlags::CLOEXEC)?),
            thread: waker::register_thread(&remote),
            remote,
            events: RefCell::new(Vec::with_capacity(BATCH)),
            sources: RefCell::default(),
            free_sources: RefCell::default(),
            tasks: RefCell::default(),
            free_tasks: RefCell::default(),
            woken: RefCell::default(),
            sleeper: Cell::new(None),
        })
    }

    fn add_source(&self) -> Rc<Source> {
        let mut sources = self.sources.borrow_mut();
        let index = self.free_sources.borrow_mut().pop().unwrap_or_else(|| {
            sources.push(Slot { generation: 0, content: None });
            (sources.len() - 1) as u32
        });
        let slot = &mut sources[index as usize];
        let token = u64::from(slot.generation) << 32 | u64::from(index);
        let source = Source { token, ready: Cell::new(0), interest: Cell::new(0), waker: Cell::new(None) };
        Rc::clone(slot.content.insert(Rc::new(source)))
    }

    fn remove_source(&self, token: u64) {
        let index = token as u32;
        let slot = &mut self.sources.borrow_mut()[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.content = None;
        self.free_sources.borrow_mut().push(index);
    }

    /// Fetches a batch of events and wakes who waits for them; returns how many there were. Never waits.
    fn fetch_events(&self) -> io::Result<usize> {
        let mut events = self.events.borrow_mut();
        events.clear();
        match epoll::wait(&*self.epoll, spare_capacity(&mut events), Some(&Timespec::default())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let sources = self.sources.borrow();
        for event in &*events {
            let token = event.data.u64();
            let source = sources.get(token as u32 as usize).and_then(|slot| slot.content.as_deref());
            // One that is gone may have left an event behind.
            if let Some(source) = source.filter(|source| source.token == token) {
                source.report(event.flags);
            }
        }
        Ok(events.len())
    }

    fn add_task(&self, task: Task) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.free_tasks.borrow_mut().pop().map_or_else(
            || {
                assert!(tasks.len() < TaskId::MOST, "too many tasks");
                tasks.push(Slot { generation: 0, content: TaskState::default() });
                tasks.len() - 1
            },
            |index| index as usize,
        );
        tasks[index].content.task = Some(task);
        TaskId::new(self.thread, tasks[index].generation, index)
    }

    fn wake(&self, id: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.get_mut(id.index()) else { return };
        if id == TaskId::new(self.thread, slot.generation, id.index()) && !slot.content.woken {
            slot.content.woken = true;
            self.woken.borrow_mut().push_back(id);
            if let Some(sleeper) = self.sleeper.take() {
                sleeper.wake();
            }
        }
    }

    fn has_woken_tasks(&self) -> bool {
        !self.woken.borrow().is_empty()
    }

    /// Waits for events, or for somebody else (a timer, another thread) to wake a task.
    fn poll_news(&self, cx: &mut Context<'_>, watched: &AsyncFd<Rc<OwnedFd>>) -> Poll<io::Result<()>> {
        self.remote.listen(cx.waker());
        self.sleeper.set(Some(cx.waker().clone()));
        let news = match watched.poll_read_ready(cx) {
            Poll::Ready(guard) => {
                // All that was reported is fetched next; whatever comes then is news to the runtime.
                guard?.clear_ready();
                true
            }
            Poll::Pending => self.has_woken_tasks() || self.remote.has_woken(),
        };
        if news {
            self.sleeper.set(None);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Runs the tasks that are woken, and those that they wake, as far as that is fair to the others.
    fn run_woken_tasks(&self) {
        self.remote.take_woken(|id| self.wake(id));
        for _ in 0..TURNS {
            let Some(id) = self.woken.borrow_mut().pop_front() else { return };
            self.run_task(id);
        }
    }

    fn run_task(&self, id: TaskId) {
        let Some(mut task) = self.begin(id) else { return };
        let waker = waker::waker(id);
        let mut cx = Context::from_waker(&waker);
        // The panic's message has been written by the time that it is caught.
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => self.tasks.borrow_mut()[id.index()].content.task = Some(task),
            Ok(Poll::Ready(())) | Err(_) => {
                self.free_task(id);
                drop(task);
            }
        }
    }

    /// Takes a task that is about to run.
    fn begin(&self, id: TaskId) -> Option<Task> {
        let slot = &mut self.tasks.borrow_mut()[id.index()];
        if id != TaskId::new(self.thread, slot.generation, id.index()) {
            return None;
        }
        slot.content.woken = false;
        slot.content.task.take()
    }

    /// Forgets a task and returns it, to be dropped when nothing is borrowed any more.
    fn remove_task(&self, id: TaskId) -> Option<Task> {
        self.begin(id).inspect(|_| self.free_task(id))
    }

    fn free_task(&self, id: TaskId) {
        let slot = &mut self.tasks.borrow_mut()[id.index()];
        slot.generation = slot.generation.wrapping_add(1);
        slot.content = TaskState::default();
        self.free_tasks.borrow_mut().push(id.index() as u32);
    }

    /// Drops all tasks. What they own may wake or spawn others, which are dropped as well.
    fn drop_tasks(&self) {
        let mut index = 0;
        loop {
            let id = {
                let tasks = self.tasks.borrow();
                let Some(slot) = tasks.get(index) else { return };
                TaskId::new(self.thread, slot.generation, index)
            };
            match self.remove_task(id) {
                Some(task) => drop(task),
                None => index += 1,
            }
        }
    }
}

/// Tasks that other threads have woken.
#[derive(Default)]
pub(super) struct Remote {
    /// Whether there are any, for a look without the lock.
    any: AtomicBool,
    woken: Mutex<Vec<TaskId>>,
    /// Of the runtime's task in which the loop runs.
    waker: Mutex<Option<Waker>>,
}

impl Remote {
    /// Wakes a task of the loop from another thread.
    pub fn wake(&self, task: TaskId) {
        lock(&self.woken).push(task);
        self.any.store(true, Release);
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    fn listen(&self, waker: &Waker) {
        let mut known = lock(&self.waker);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn has_woken(&self) -> bool {
        self.any.load(Acquire)
    }

    fn take_woken(&self, wake: impl FnMut(TaskId)) {
        if self.has_woken() {
            self.any.store(false, Release);
            std::mem::take(&mut *lock(&self.woken)).into_iter().for_each(wake);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    fn run_here(main: impl Future<Output = ()> + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(main)).unwrap();
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
            tokio::time::sleep(Duration::from_millis(60)).await;
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
            spawn(async move { poll_fn(|cx| Poll::Ready(*kept.borrow_mut() = Some(cx.waker().clone()))).await });
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
}
