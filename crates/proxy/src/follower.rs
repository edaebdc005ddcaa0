//! Threads beside the workers that do something for the servers of the configuration in use.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::essential;
use crate::running_config::Generation;

/// The configurations that a follower is told of. When there is no other one, it ends.
pub type Generations = UnboundedReceiver<Arc<Generation>>;

/// What a follower does.
pub struct Duty {
    /// The name of its thread.
    pub name: &'static str,
    /// What it is called in messages.
    pub called: &'static str,
    /// What fails if it cannot run.
    pub purpose: &'static str,
    /// Whether a configuration needs it.
    pub is_needed: fn(&Generation) -> bool,
    /// Does it, until there is no other configuration.
    pub run: fn(Generations) -> io::Result<()>,
}

/// A thread that exists while a configuration needs it.
pub struct Follower {
    duty: &'static Duty,
    running: Option<(UnboundedSender<Arc<Generation>>, JoinHandle<()>)>,
}

impl Follower {
    /// It does not run yet.
    pub fn new(duty: &'static Duty) -> Follower {
        Follower { duty, running: None }
    }

    /// Changes to another configuration: starts the thread if it is needed, and ends it if it is not.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&mut self, generation: &Arc<Generation>) -> anyhow::Result<()> {
        let is_needed = (self.duty.is_needed)(generation);
        if is_needed && self.running.is_none() {
            self.running = Some(self.start()?);
        }
        self.tell(generation);
        if !is_needed {
            self.stop();
        }
        Ok(())
    }

    /// Tells it that the configuration has other servers.
    pub fn tell(&self, generation: &Arc<Generation>) {
        if let Some((generations, _)) = &self.running {
            let _ = generations.send(Arc::clone(generation));
        }
    }

    /// Ends it, with all that it started.
    pub fn stop(&mut self) {
        if let Some((generations, thread)) = self.running.take() {
            drop(generations);
            let _ = thread.join();
        }
    }

    fn start(&self) -> anyhow::Result<(UnboundedSender<Arc<Generation>>, JoinHandle<()>)> {
        let (generations, receiver) = unbounded_channel();
        let Duty { name, called, purpose, run, .. } = *self.duty;
        let run = move || {
            let _guard = essential::Guard::new(called);
            if let Err(error) = run(receiver) {
                essential::end_process(format_args!("cannot {purpose}: {error}"));
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        Ok((generations, thread.context("cannot start a thread")?))
    }
}
