//! An experiment from its first block to its end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use balanza_balancing::Fleet;
use balanza_config::model::Level;
use balanza_config::model::membership::Arm;
use balanza_experiment::{Block, Guards, Part, Phase, Place, Schedule};
use balanza_net::clock::{self, Nanos};

use super::super::upstreams;
use super::plan::{self, Plan};
use super::{Failure, Ground, Key};
use crate::random;
use crate::servers::blocks::{PHASES, Running};
use crate::servers::membership::{Membership, Shared};

/// Between two looks at how full the servers are.
const SAMPLE: Duration = Duration::from_millis(250);
/// Between two judgements of the guards.
const JUDGE: Duration = Duration::from_secs(1);

/// How an experiment has ended.
pub struct End {
    /// `completed`, `stopped`, `guard` or `disturbed`.
    pub kind: &'static str,
    /// Why, for people.
    pub reason: String,
    /// When.
    pub time: SystemTime,
}

/// A block that runs.
struct Current {
    block: Block,
    running: Arc<Running>,
    phase: Phase,
    /// When the phase began.
    phase_begun: Nanos,
    fleet: Arc<Fleet>,
    /// The servers or the configuration have changed.
    is_disturbed: bool,
}

/// An experiment.
pub struct Trial {
    /// Which upstream.
    pub key: Key,
    /// What is run.
    pub plan: Plan,
    /// Which arm runs when.
    pub schedule: Schedule,
    /// Of the order.
    pub seed: u64,
    /// When it began.
    pub started: SystemTime,
    /// The blocks that are over and read.
    pub blocks: Vec<Block>,
    /// How it has ended.
    pub end: Option<End>,
    /// The method of the upstream.
    control: String,
    /// The configuration's.
    instead_of: String,
    is_configured: bool,
    guards: Guards,
    begun: Nanos,
    judged: Nanos,
    current: Option<Current>,
    /// Blocks whose last requests are waited for.
    closing: Vec<(Block, Arc<Running>)>,
}

impl Trial {
    /// One that begins now.
    pub fn new(key: Key, shared: &Shared, plan: Plan, ground: &mut Ground<'_>) -> Result<Trial, Failure> {
        let settings = &plan.settings;
        // Every reader of JSON has this seed exactly.
        let seed = settings.seed.unwrap_or_else(|| random::seed() >> 11);
        let (block, washout) = (clock::nanos(settings.block), clock::nanos(settings.washout()));
        let schedule = Schedule::new(plan.arms.len() + 1, seed, block, washout, settings.rounds);
        let schedule = schedule.map_err(|error| Failure::format(error.to_string()))?;
        let guards = Guards {
            errors: settings.errors,
            p99: settings.p99.map(clock::nanos),
            p99_ratio: settings.p99_ratio,
            fullness: settings.full,
            requests: settings.requests,
        };
        let control = plan::in_use(shared, &shared.membership());
        let count = schedule.blocks();
        let text =
            format_args!("an experiment begins, {count} blocks of \"{control}\" and \"{}\"", plan.arms.join("\", \""));
        ground.tell(Level::Notice, &key, text);
        Ok(Trial {
            is_configured: Plan::configured(&shared.conf).as_ref() == Some(&plan),
            control,
            instead_of: shared.conf.method.clone(),
            key,
            plan,
            schedule,
            seed,
            started: ground.today,
            blocks: Vec::new(),
            end: None,
            guards,
            begun: ground.now,
            judged: ground.now,
            current: None,
            closing: Vec::new(),
        })
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.end.is_none()
    }

    /// The names of its arms, the control first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.control).chain(&self.plan.arms).map(String::as_str)
    }

    /// The block that runs, with what it has measured so far.
    pub fn current(&self) -> Option<Block> {
        let current = self.current.as_ref()?;
        Some(read(current.block.clone(), &current.running))
    }

    /// The phase of the block that runs, and how long both last.
    pub fn place(&self) -> Option<(Phase, Duration)> {
        let current = self.current.as_ref()?;
        let end = (current.block.number + 1) * self.schedule.block();
        let left = end.saturating_sub(clock::now().saturating_sub(self.begun));
        Some((current.phase, Duration::from_nanos(left)))
    }

    /// How long until it is to be driven again.
    pub fn wait(&self, now: Nanos) -> Option<Duration> {
        if !self.is_running() {
            return None;
        }
        let elapsed = now.saturating_sub(self.begun);
        let border = self.schedule.at(elapsed).map(|place| place.until);
        let closing = self.closing.iter().map(|(block, _)| self.schedule.read_at(block.number));
        // One that could be read waits for its last requests.
        let closing = closing.map(|at| if at <= elapsed { Nanos::MAX } else { at });
        let next = border.into_iter().chain(closing).min()?;
        Some(Duration::from_nanos(next.saturating_sub(elapsed)).min(SAMPLE))
    }

    /// Does what is due.
    pub fn drive(&mut self, ground: &mut Ground<'_>) {
        if !self.is_running() {
            return;
        }
        if let Some(reason) = self.disturbance(ground) {
            return self.finish(ground, "disturbed", reason);
        }
        let elapsed = ground.now.saturating_sub(self.begun);
        if let Some(reason) = self.read_closed(elapsed) {
            return self.finish(ground, "guard", reason);
        }
        let Some(place) = self.schedule.at(elapsed) else {
            if self.current.is_some() {
                self.close(ground.now, self.schedule.blocks());
                self.leave(ground);
            }
            if self.closing.is_empty() {
                return self.finish(ground, "completed", "all blocks have run".to_owned());
            }
            return self.judge(ground);
        };
        match &mut self.current {
            Some(current) if current.block.number == place.block => current.enter(place.phase, ground.now),
            _ => {
                self.close(ground.now, place.block);
                if let Err(reason) = self.begin_block(ground, place) {
                    return self.finish(ground, "disturbed", reason);
                }
            }
        }
        self.look(ground);
        self.judge(ground);
    }

    /// Why it cannot go on.
    fn disturbance(&mut self, ground: &Ground<'_>) -> Option<String> {
        let Some(shared) = ground.view.upstream(self.key.0, &self.key.1) else {
            return Some("the configuration has the upstream no more".to_owned());
        };
        if shared.conf.method != self.instead_of {
            return Some(format!("the configuration has another method, \"{}\"", shared.conf.method));
        }
        if self.is_configured && Plan::configured(&shared.conf).as_ref() != Some(&self.plan) {
            return Some("the configuration has another experiment".to_owned());
        }
        let current = self.current.as_mut()?;
        let membership = shared.membership();
        if !membership.balancing.block.as_ref().is_some_and(|block| Arc::ptr_eq(block, &current.running)) {
            return Some(format!("the arm \"{}\" is not possible with this configuration", current.running.arm));
        }
        if !Arc::ptr_eq(&membership.fleet, &current.fleet) {
            current.fleet = Arc::clone(&membership.fleet);
            current.is_disturbed = true;
        }
        let is_up = |nth: usize| upstreams::state(&membership, nth) == "up";
        let count = membership.servers.len();
        (count > 0 && !(0..count).any(is_up)).then(|| "no server is up".to_owned())
    }

    /// Changes to the arm of another block.
    fn begin_block(&mut self, ground: &Ground<'_>, place: Place) -> Result<(), String> {
        let method = place.arm.checked_sub(1).map(|at| self.plan.arms[at].clone());
        let name = method.clone().unwrap_or_else(|| self.control.clone());
        let running = Running::new(&name, place.phase);
        let arm = Arm { name: name.clone(), method, instead_of: self.instead_of.clone() };
        let (protocol, upstream) = &self.key;
        let set = ground.plane.set_arm(*protocol, upstream, Some((arm, Arc::clone(&running))));
        set.map_err(|error| format!("the arm \"{name}\" is refused: {error}"))?;
        let membership = ground.view.upstream(*protocol, upstream).map(Shared::membership);
        self.current = membership.map(|membership: Arc<Membership>| Current {
            block: Block::new(place.block, place.arm),
            running,
            phase: place.phase,
            phase_begun: ground.now,
            fleet: Arc::clone(&membership.fleet),
            is_disturbed: false,
        });
        Ok(())
    }

    /// The block that runs is over. The last requests that began in it are waited for.
    fn close(&mut self, now: Nanos, next: u64) {
        let Some(mut current) = self.current.take() else { return };
        current.end_phase(now);
        current.block.complete = !current.is_disturbed && next == current.block.number + 1;
        self.closing.push((current.block, current.running));
    }

    /// Reads the blocks whose last requests are not waited for any more, in their order. Returns the guard that one of them
    /// exceeds: its last requests may have failed since the guards were judged.
    fn read_closed(&mut self, elapsed: Nanos) -> Option<String> {
        let is_due = |(block, running): &(Block, Arc<Running>)| {
            let number = block.number;
            let is_over = self.schedule.read_at(number) <= elapsed && running.is_over();
            is_over || self.schedule.given_up_at(number) <= elapsed
        };
        let due = self.closing.iter().take_while(|closing| is_due(closing)).count();
        let control = (due > 0).then(|| self.control_part())?;
        let mut breach = None;
        for (block, running) in self.closing.drain(..due) {
            let block = read(block, &running);
            breach = breach.or_else(|| breach_of(&self.guards, &block, &running.arm, &control));
            self.blocks.push(block);
        }
        breach
    }

    /// What counts in the blocks of the control so far.
    fn control_part(&self) -> Part {
        let mut part = Part::default();
        let blocks = self.blocks.iter().filter(|block| block.arm == 0 && block.complete);
        blocks.for_each(|block| part.merge(&block.counted()));
        part
    }

    /// Looks at the servers.
    fn look(&mut self, ground: &mut Ground<'_>) {
        let Some(current) = &mut self.current else { return };
        let Some(shared) = ground.view.upstream(self.key.0, &self.key.1) else { return };
        let (in_flight, slots) = plan::slots(&shared.membership());
        current.block.part_mut(current.phase).fullness.sample(in_flight, slots);
    }

    /// Judges the block that runs, and those whose last requests are waited for: what fails by a time-out fails late.
    fn judge(&mut self, ground: &mut Ground<'_>) {
        if ground.now.saturating_sub(self.judged) < clock::nanos(JUDGE) || !self.guards.is_any() {
            return;
        }
        self.judged = ground.now;
        let control = self.control_part();
        let closing = self.closing.iter().map(|(block, running)| (block, running));
        let current = self.current.iter().map(|current| (&current.block, &current.running));
        let reason = closing.chain(current).find_map(|(block, running)| {
            breach_of(&self.guards, &read(block.clone(), running), &running.arm, &control)
        });
        if let Some(reason) = reason {
            self.finish(ground, "guard", reason);
        }
    }

    /// Ends it because it was told to.
    pub fn stop(&mut self, ground: &mut Ground<'_>) {
        self.finish(ground, "stopped", "it was stopped by the API".to_owned());
    }

    /// Goes back to the method of the upstream.
    fn leave(&mut self, ground: &mut Ground<'_>) {
        let (protocol, upstream) = &self.key;
        // Without the upstream there is nothing to go back to.
        if ground.view.upstream(*protocol, upstream).is_some()
            && let Err(error) = ground.plane.set_arm(*protocol, upstream, None)
        {
            let text = format_args!("it does not go back to its method after the experiment: {error}");
            ground.tell(Level::Alert, &self.key, text);
        }
    }

    /// It is over.
    fn finish(&mut self, ground: &mut Ground<'_>, kind: &'static str, reason: String) {
        if self.current.is_some() {
            self.leave(ground);
        }
        if let Some(mut current) = self.current.take() {
            current.end_phase(ground.now);
            self.closing.push((current.block, current.running));
        }
        // A block whose last requests have not ended is not complete.
        let cut = self.closing.drain(..).map(|(block, running)| {
            let complete = block.complete && running.is_over();
            Block { complete, ..read(block, &running) }
        });
        self.blocks.extend(cut);
        let (level, control) = (if kind == "completed" { Level::Notice } else { Level::Warn }, &self.control);
        let text = format_args!("the experiment has ended, {reason}; the method is \"{control}\" again");
        ground.tell(level, &self.key, text);
        self.end = Some(End { kind, reason, time: ground.today });
    }
}

impl Current {
    fn enter(&mut self, phase: Phase, now: Nanos) {
        if self.phase != phase {
            self.end_phase(now);
            self.running.enter(phase);
            self.phase = phase;
        }
    }

    fn end_phase(&mut self, now: Nanos) {
        self.block.part_mut(self.phase).span += now.saturating_sub(self.phase_begun);
        self.phase_begun = now;
    }
}

/// The guard that a block exceeds, for people.
fn breach_of(guards: &Guards, block: &Block, arm: &str, control: &Part) -> Option<String> {
    let breach = guards.judge(&block.whole(), Some(control).filter(|_| block.arm != 0))?;
    Some(format!("guard in arm \"{arm}\": {breach}"))
}

/// A block with what the workers have counted of it.
fn read(mut block: Block, running: &Running) -> Block {
    for (number, phase) in PHASES.into_iter().enumerate() {
        let part = block.part_mut(phase);
        (part.times, part.failures) = running.read(number);
    }
    block
}
