//! What dispatchers are told of the servers beside answers: probes and reports of load.

use balanza_balancing::{Member, Nanos};

use super::server::Health;
use super::{Engine, Event};

/// Looks at a server's queue for each report of its load.
const REPORT_SAMPLES: u32 = 16;

impl Engine<'_> {
    /// Sends the probes that the algorithm wants now.
    #[cold]
    pub(super) fn probe(&mut self, dispatcher: u16) {
        let mut asked = std::mem::take(&mut self.asked);
        self.balancers.take_probes(self.now, dispatcher, &mut asked);
        for Member(server) in asked.iter().copied() {
            if self.setup.delay == 0 {
                if let Some((queue, latency)) = self.answer_probe(server) {
                    self.balancers.probed(self.now, dispatcher, server, queue, latency);
                }
                continue;
            }
            let probe = (dispatcher, server, 0, 0);
            let place = match self.free_probes.pop() {
                Some(place) => {
                    self.probes[place as usize] = probe;
                    place
                }
                None => {
                    self.probes.push(probe);
                    self.probes.len() as u32 - 1
                }
            };
            self.schedule(self.now + self.setup.delay, Event::Probe, 0, place);
        }
        self.asked = asked;
    }

    /// What a server says: its requests, and the median latency of those that found about as many. One that is not well
    /// says nothing.
    fn answer_probe(&self, server: u32) -> Option<(u32, Nanos)> {
        let (at, latencies) = (&self.servers[server as usize], &self.latencies[server as usize]);
        let latency = latencies.at(self.now, at.queue()).map_or(0, |(latency, _)| latency as Nanos);
        (at.health == Health::Well).then(|| (at.queue(), latency))
    }

    pub(super) fn probe_there(&mut self, place: u32) {
        let Some(answer) = self.answer_probe(self.probes[place as usize].1) else {
            self.free_probes.push(place);
            return;
        };
        let probe = &mut self.probes[place as usize];
        (probe.2, probe.3) = answer;
        self.schedule(self.now + self.setup.delay, Event::ProbeBack, 0, place);
    }

    pub(super) fn probe_back(&mut self, place: u32) {
        let (dispatcher, server, in_flight, latency) = self.probes[place as usize];
        self.free_probes.push(place);
        self.balancers.probed(self.now, dispatcher, server, in_flight, latency);
    }

    /// Looks at the requests of every server, for each unit of concurrency; each [`REPORT_SAMPLES`]th time every server
    /// reports the mean of its last ones.
    pub(super) fn report(&mut self, sample: u32) {
        let reports = sample == 0;
        // The first report comes before any sample.
        let samples = if self.now == 0 { 1.0 } else { f64::from(REPORT_SAMPLES) };
        for (i, server) in self.servers.iter().enumerate().filter(|(_, s)| s.health != Health::Crashed) {
            let sum = &mut self.sampled[i];
            *sum += u64::from(server.queue());
            if reports {
                let of = f64::from(self.setup.kinds[usize::from(server.kind)].concurrency);
                let load = std::mem::take(sum) as f64 / samples / of;
                self.balancers.states(i as u32).for_each(|state| state.report_load(self.now, load));
            }
        }
        let next = (sample + 1) % REPORT_SAMPLES;
        let wait = (self.setup.reports / Nanos::from(REPORT_SAMPLES)).max(1);
        self.schedule(self.now + wait, Event::Report, 0, next);
    }
}
