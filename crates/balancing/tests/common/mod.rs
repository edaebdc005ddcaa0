//! Fleets of a few servers, for several tests.

use std::sync::Arc;

use balanza_balancing::registry::{Spec, find};
use balanza_balancing::{Driver, Fleet, ServerSpec, ServerState, Start};

pub fn fleet(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Arc<Fleet> {
    let spec = Spec::new(find(algorithm).unwrap(), parameters).unwrap();
    Arc::new(Fleet::new(&spec, servers.into_iter().map(|s| (s, Arc::new(ServerState::new()))).collect()).unwrap())
}

pub fn driver(algorithm: &str, parameters: &[(&str, &str)], servers: Vec<ServerSpec>) -> Driver {
    Driver::new(fleet(algorithm, parameters, servers), 1, Start::default())
}

pub fn weighted(weights: &[u32]) -> Vec<ServerSpec> {
    let server = |(i, w): (usize, &u32)| ServerSpec { weight: *w, ..ServerSpec::new(&format!("s{i}:80")) };
    weights.iter().enumerate().map(server).collect()
}
