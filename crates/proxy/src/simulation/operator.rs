//! What an engine does to its workers, for one worker and without threads: configurations, and changes of the servers of an
//! upstream.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use balanza_config::model::ListenAddress;
use balanza_config::model::membership::{Changes, Protocol};
use balanza_config::{Bundle, Options, Severity};
use balanza_net::simulation::{Random, note};

use super::ledger::Ledger;
use super::scenario;
use crate::log::LogFiles;
use crate::outside::Outside;
use crate::running_config::Generation;
use crate::servers::membership::{Membership, Servers};
use crate::worker::Worker;

/// Configures a worker.
pub struct Operator {
    pub ledger: Rc<Ledger>,
    pub worker: Rc<Worker>,
    /// Has the error log, the files that clients ask for, and room for temporary ones.
    pub directory: PathBuf,
    servers: Servers,
    generation: Option<Arc<Generation>>,
    /// All that there have been.
    memberships: Vec<Arc<Membership>>,
}

impl Operator {
    pub fn new(ledger: &Rc<Ledger>, worker: &Rc<Worker>, directory: PathBuf) -> Operator {
        let (ledger, worker) = (Rc::clone(ledger), Rc::clone(worker));
        Operator { ledger, worker, directory, servers: Servers::default(), generation: None, memberships: Vec::new() }
    }

    /// Gives the worker a configuration.
    pub fn configure(&mut self, random: &mut Random) {
        let text = scenario::configuration(&self.ledger.knobs, &self.ledger.places, random);
        note(format_args!("{text}"));
        let mut bundle = Bundle::default();
        bundle.add_file("/simulation.conf", text.as_str());
        let (config, diagnostics) = balanza_config::load(&bundle, &Options::new(&self.directory, "/simulation.conf"));
        let errors: Vec<_> = diagnostics.iter().filter(|it| it.severity == Severity::Error).collect();
        let config = config.unwrap_or_else(|| panic!("{errors:?} in {text}"));
        let path = self.directory.join("error.log");
        let log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let logs = LogFiles::new(vec![(path, log.into())], &LogFiles::default());
        let before = self.generation.as_deref();
        let outside = Outside { names: &Arc::default(), discoveries: &Arc::default() };
        let generation =
            Generation::new(Arc::new(config), &mut Changes::default(), &outside, logs, &mut self.servers, before);
        let generation = Arc::new(generation.unwrap());
        let listen = ListenAddress::Inet(SocketAddr::from(scenario::LISTEN));
        self.worker.configure(&generation, vec![(listen, Vec::new())]);
        self.memberships.extend(generation.upstreams().map(|upstream| upstream.membership()));
        self.generation = Some(generation);
    }

    /// Gives the upstream other servers of those that there are.
    pub fn change(&mut self, random: &mut Random) {
        let Some(generation) = &self.generation else { return };
        for upstream in generation.upstreams() {
            let mut list = upstream.conf.servers.clone();
            for _ in 0..random.below(list.len() as u64) {
                list.swap_remove(random.below(list.len() as u64) as usize);
            }
            list.iter_mut().for_each(|server| server.weight = random.between(1, 3) as u32);
            let names: Vec<&str> = list.iter().map(|server| server.name.as_str()).collect();
            note(format_args!("servers: {names:?}"));
            let membership = upstream.prepare(list, &mut self.servers).unwrap();
            upstream.replace(Arc::clone(&membership));
            self.worker.adopt(generation, Protocol::Http, &upstream.conf.name);
            self.memberships.push(membership);
        }
        self.servers.keep_used();
    }

    /// Requests in flight, at all servers that there have been.
    pub fn in_flight(&self) -> usize {
        let fleets = self.memberships.iter().map(|membership| &membership.fleet);
        fleets.flat_map(|fleet| fleet.members().map(|member| fleet.state(member).in_flight() as usize)).sum()
    }
}
