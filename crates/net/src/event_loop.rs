//! A worker's event loop: which sockets are ready, by epoll, and the tasks that wait for them.
//!
//! Channels and everything else of a worker belong to the tokio runtime that [`run`] is called in. Sockets, the tasks of
//! connections and their timers are handled here, without the atomics of a runtime whose tasks can be woken by any thread.
//! The runtime watches the loop's epoll descriptor and has one timer for it, so that both sleep in one system call.

mod heavy;
mod remote;
mod source;
#[cfg(test)]
mod tests;
mod timers;
mod waker;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event};
use tokio::io::unix::AsyncFd;

use self::heavy::Heavy;
pub use self::heavy::HeavyTurn;
use self::remote::Remote;
pub(crate) use self::source::Registration;
#[cfg(feature = "simulation")]
pub(crate) use self::source::Reporter;
use self::source::Source;
use self::timers::{RuntimeTimer, Timers};
use self::waker::TaskId;
use crate::clock::{self, Nanos};
use crate::memory;
use crate::watch;

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
    let mut alarm = RuntimeTimer::new();
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
            if events >= BUSY || event_loop.has_work() {
                tokio::task::yield_now().await;
                // What has arrived since the last heavy work goes before the next.
                if event_loop.heavy.is_waited_for() {
                    event_loop.fetch_events()?;
                }
            } else {
                poll_fn(|cx| event_loop.poll_news(cx, &watched, &mut alarm)).await?;
            }
        }
    };
    // Tasks alternate by batches, so the runtime's budget of a task does not apply to them.
    let served = tokio::task::coop::unconstrained(serve).await;
    event_loop.drop_tasks();
    event_loop.run_deferred();
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

/// One of the timers of this thread's loop.
pub(crate) struct TimerEntry {
    index: u32,
    /// It is of this thread, and of no other.
    thread: PhantomData<Rc<()>>,
}

impl TimerEntry {
    /// One that is not set.
    ///
    /// # Panics
    /// When the system has no descriptor left for a loop that has not run yet.
    pub fn new() -> TimerEntry {
        let event_loop = current().expect("an event loop");
        let index = event_loop.timers.borrow_mut().add();
        TimerEntry { index, thread: PhantomData }
    }

    /// Has the task woken at this moment, and no more at an earlier one.
    pub fn set(&self, at: Nanos, waker: &Waker) {
        let before = with_loop(|event_loop| {
            let mut timers = event_loop.timers.borrow_mut();
            let is_first = timers.next().is_none_or(|next| at < next);
            let before = timers.set(self.index, at, waker.clone());
            if is_first {
                // A task of the runtime may set it while the loop sleeps until a later moment, or for ever.
                event_loop.wake_up();
            }
            before
        });
        drop(before);
    }
}

impl Drop for TimerEntry {
    fn drop(&mut self) {
        // The thread's loop may be gone before the last connection.
        let waker = with_loop(|event_loop| event_loop.timers.borrow_mut().remove(self.index));
        drop(waker);
    }
}

/// How many tasks this thread has that have not ended.
#[cfg(feature = "simulation")]
pub fn tasks() -> usize {
    with_loop(|event_loop| event_loop.tasks.borrow().len() - event_loop.free_tasks.borrow().len()).unwrap_or(0)
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

/// Work for many requests that is cheaper done at once.
pub trait Deferred {
    /// Does it.
    fn run(&self);
}

/// Has this done when the tasks that are woken now have run.
///
/// # Panics
/// When the system has no descriptor left for a loop that has not run yet.
pub fn defer(work: Rc<dyn Deferred>) {
    let event_loop = current().expect("an event loop");
    event_loop.deferred.borrow_mut().push(work);
    event_loop.wake_up();
}

/// Lets the other tasks run, also those whose events have not been fetched yet. A task that only wakes itself runs hundreds of times
/// before events are fetched.
pub async fn let_others_run() {
    let mut deferred = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut deferred, true) {
            return Poll::Ready(());
        }
        defer(Rc::new(Yielded(cx.waker().clone())));
        Poll::Pending
    })
    .await;
}

/// A task that goes on when the others have run.
struct Yielded(Waker);

impl Deferred for Yielded {
    fn run(&self) {
        self.0.wake_by_ref();
    }
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
    deferred: RefCell<Vec<Rc<dyn Deferred>>>,
    heavy: Heavy,
    timers: RefCell<Timers>,
    /// The runtime's task in which the loop runs, while it waits.
    sleeper: Cell<Option<Waker>>,
}

/// Acts on this thread's loop, if there is one: the thread may be ending.
fn with_loop<T>(act: impl FnOnce(&EventLoop) -> T) -> Option<T> {
    LOOP.try_with(|it| it.get().map(|event_loop| act(event_loop))).ok().flatten()
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
fn wake_local(task: TaskId, thread: u16) -> bool {
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
            deferred: RefCell::default(),
            heavy: Heavy::default(),
            timers: RefCell::default(),
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
        Rc::clone(slot.content.insert(Source::new(token)))
    }

    fn remove_source(&self, token: u64) {
        let index = token as u32;
        let slot = &mut self.sources.borrow_mut()[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.content = None;
        self.free_sources.borrow_mut().push(index);
    }

    /// Fetches a batch of events and wakes the tasks that wait for them; returns the number of events. Never waits.
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
        memory::count(size_of_val(&*task) as isize);
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
            self.wake_up();
        }
    }

    /// Ends the loop's sleep, if it sleeps.
    fn wake_up(&self) {
        if let Some(sleeper) = self.sleeper.take() {
            sleeper.wake();
        }
    }

    fn has_work(&self) -> bool {
        !self.woken.borrow().is_empty() || !self.deferred.borrow().is_empty() || self.heavy.is_waited_for()
    }

    /// Waits for events, or until something else (a timer, another thread) wakes a task.
    fn poll_news(
        &self,
        cx: &mut Context<'_>,
        watched: &AsyncFd<Rc<OwnedFd>>,
        alarm: &mut RuntimeTimer,
    ) -> Poll<io::Result<()>> {
        self.remote.listen(cx.waker());
        // The loop is awake: tasks whose moment has come need not wake it once more.
        self.sleeper.set(None);
        if alarm.has_rung() {
            self.fire_timers(clock::now());
        }
        self.sleeper.set(Some(cx.waker().clone()));
        let next = self.timers.borrow().next();
        if let Some(next) = next {
            alarm.set(cx, next);
        }
        let news = match watched.poll_read_ready(cx) {
            Poll::Ready(guard) => {
                // All that was reported is fetched next; whatever comes then is news to the runtime.
                guard?.clear_ready();
                true
            }
            Poll::Pending => self.has_work() || self.remote.has_woken(),
        };
        if news {
            self.sleeper.set(None);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Wakes the tasks whose moment has come.
    fn fire_timers(&self, now: Nanos) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { return };
            waker.wake();
        }
    }

    /// Runs the tasks that are woken, and those that they wake, as far as that is fair to the others; then what they have
    /// deferred.
    fn run_woken_tasks(&self) {
        self.remote.take_woken(|id| self.wake(id));
        if self.has_work() {
            // For all of these tasks, whatever has woken them.
            self.fire_timers(clock::now());
        }
        let mut ran = 0;
        while ran < TURNS {
            let Some(id) = self.woken.borrow_mut().pop_front() else { break };
            self.run_task(id);
            self.heavy.after_run();
            ran += 1;
        }
        self.run_deferred();
        // Last in a turn: the tasks that its events have woken do not wait for it.
        let idle = self.woken.borrow().is_empty();
        if idle && self.heavy.grant() {
            let next = self.woken.borrow_mut().pop_front();
            if let Some(id) = next {
                self.run_task(id);
            }
            self.run_deferred();
        }
    }

    fn run_deferred(&self) {
        loop {
            let Some(work) = self.deferred.borrow_mut().pop() else { return };
            work.run();
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
                self.free_task(id, &task);
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
        self.begin(id).inspect(|task| self.free_task(id, task))
    }

    fn free_task(&self, id: TaskId, task: &Task) {
        memory::count(-(size_of_val(&**task) as isize));
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
