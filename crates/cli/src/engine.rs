//! The data plane behind the supervisor's interface.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use balanza_config::model::membership::Notify;
use balanza_supervisor::{Engine, Setup};

struct Proxy(balanza_proxy::Engine);

/// Starts the proxy.
///
/// # Errors
/// Why it cannot serve this configuration.
pub fn start(setup: Setup) -> anyhow::Result<Box<dyn Engine>> {
    Ok(Box::new(Proxy(balanza_proxy::Engine::start(of_the_proxy(setup))?)))
}

fn of_the_proxy(setup: Setup) -> balanza_proxy::Setup {
    let Setup { config, listeners, logs, threads, changes, respawned } = setup;
    balanza_proxy::Setup { config, listeners, logs, threads, changes, respawned }
}

impl Engine for Proxy {
    fn reload(&self, setup: Setup) -> anyhow::Result<()> {
        self.0.reload(of_the_proxy(setup))
    }

    fn on_change(&self, notify: Notify) {
        self.0.on_change(notify);
    }

    fn reopen_logs(&self, logs: Vec<(PathBuf, OwnedFd)>) {
        self.0.reopen_logs(logs);
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.stop();
    }
}
