//! Fetches the responses of OCSP that are shown with certificates (`ssl_stapling`), so that no handshake waits for one.
//!
//! One thread of the process has a task for each certificate. A response is fetched again when half of its time is over, and
//! at least once an hour, as in NGINX. A failure leaves the response that is there, until it expires.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use balanza_config::model::{Level, Stapling};
use balanza_net::event_loop::{self, TaskHandle};
use balanza_tls::pki_types::UnixTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::discovery::{api, jitter};
use crate::essential;
use crate::follower::{Duty, Generations};
use crate::log::error::ErrorWriter;
use crate::names::Names;
use crate::running_config::Generation;

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A response is not fetched again earlier than after this time, and not later than after the other.
const REFRESH_MIN: Duration = Duration::from_secs(1);
const REFRESH_MAX: Duration = Duration::from_secs(3600);
/// How many responses are fetched at a time.
const AT_A_TIME: usize = 16;
/// The longest response.
const LONGEST: usize = 64 << 10;
/// How many reasons are logged of failures without a success between them.
const REASONS: usize = 4;

/// Fetches responses for the certificates of servers with `ssl_stapling`.
pub static STAPLES: Duty = Duty {
    name: "ocsp",
    called: "the thread of OCSP stapling",
    purpose: "fetch the status of certificates",
    is_needed: |generation| !generation.config.staplings.is_empty(),
    run: |generations| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
        let main = essential::task("the thread of OCSP stapling", obey(generations));
        let ran = runtime.block_on(event_loop::run(main));
        drop(runtime);
        balanza_net::buffer::release();
        ran
    },
};

/// The tasks of a configuration.
struct Tasks(Vec<TaskHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.drain(..).for_each(TaskHandle::abort);
    }
}

async fn obey(mut generations: Generations) {
    let (mut number, mut tasks) = (None, Tasks(Vec::new()));
    while let Some(generation) = generations.recv().await {
        // It is also told of other servers.
        if number.replace(generation.number) != Some(generation.number) {
            drop(tasks);
            tasks = begin(&generation);
        }
    }
}

fn begin(generation: &Generation) -> Tasks {
    let permits = Rc::new(Semaphore::new(AT_A_TIME));
    let of = |stapling: &Arc<Stapling>| {
        let follower = Follower {
            stapling: Arc::clone(stapling),
            names: Arc::clone(&generation.names),
            log: ErrorWriter::new(&generation.config.core.error_log, &generation.logs),
            permits: Rc::clone(&permits),
            reasons: HashSet::new(),
        };
        event_loop::spawn(essential::task("the status of a certificate", follower.follow()))
    };
    Tasks(generation.config.staplings.iter().map(of).collect())
}

/// Keeps the response of a certificate.
struct Follower {
    stapling: Arc<Stapling>,
    names: Arc<Names>,
    log: ErrorWriter,
    permits: Rc<Semaphore>,
    /// What was logged since the last success.
    reasons: HashSet<String>,
}

impl Follower {
    async fn follow(mut self) {
        let mut pause = PAUSE_MIN;
        sleep(self.rest()).await;
        loop {
            match self.fetch().await {
                Ok(()) => {
                    self.succeeded();
                    pause = PAUSE_MIN;
                    sleep(self.rest().max(REFRESH_MIN)).await;
                }
                Err(why) => {
                    self.failed(why);
                    sleep(jitter(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// How long the present response need not be fetched again.
    fn rest(&self) -> Duration {
        let Some((fetched, until)) = self.stapling.staple.times() else { return Duration::ZERO };
        rest(fetched.as_secs(), until.as_secs(), UnixTime::now().as_secs())
    }

    async fn fetch(&self) -> Result<(), String> {
        let Stapling { staple, responder, resolver, .. } = &*self.stapling;
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let request = staple.request().map_err(|error| error.to_string())?;
        let found;
        let addresses = match responder.addresses.as_slice() {
            [] => {
                let failed = |failure| format!("{} could not be resolved ({failure})", responder.host);
                found = self.names.find(resolver, &responder.host, responder.port).await.map_err(failed)?;
                &found[..]
            }
            known => known,
        };
        let slash = if responder.path.ends_with('/') { "" } else { "/" };
        let target = format!("{}{slash}{}", responder.path, api::encode(&STANDARD.encode(request)));
        let request = api::Request { target, accept: Some("application/ocsp-response"), ..api::Request::default() };
        let response = api::send_to(addresses, &responder.authority, &request).await?.bytes(LONGEST).await?;
        staple.take(response, UnixTime::now()).map_err(|why| format!("the response cannot be used: {why}"))
    }

    fn succeeded(&mut self) {
        if !self.reasons.is_empty() {
            self.reasons.clear();
            let Stapling { name, responder, .. } = &*self.stapling;
            let message = format_args!("OCSP stapling for \"{name}\": {responder} has sent a valid response again");
            self.log.write(Level::Notice, message);
        }
    }

    fn failed(&mut self, why: String) {
        if self.reasons.len() < REASONS && !self.reasons.contains(&why) {
            let Stapling { name, responder, staple, .. } = &*self.stapling;
            let rest = match staple.times() {
                Some((_, until)) if until > UnixTime::now() => "the last response is sent until it expires",
                _ => "no response is sent",
            };
            self.log.write(
                Level::Error,
                format_args!("OCSP stapling for \"{name}\": {why}, while fetching from {responder}; {rest}"),
            );
            self.reasons.insert(why);
        }
    }
}

/// How long a response need not be fetched again that was fetched at a time and holds until another, in seconds.
fn rest(fetched: u64, until: u64, now: u64) -> Duration {
    let whole = Duration::from_secs(until.saturating_sub(fetched) / 2).min(REFRESH_MAX);
    // A clock that was set back makes no pause longer.
    whole.saturating_sub(Duration::from_secs(now.saturating_sub(fetched)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_fetched_again_at_half_of_its_time() {
        let seconds = |fetched, until, now| rest(fetched, until, now).as_secs();
        assert_eq!(seconds(1000, 1060, 1000), 30);
        assert_eq!(seconds(1000, 1060, 1020), 10);
        assert_eq!([seconds(1000, 1060, 1030), seconds(1000, 1060, 2000)], [0, 0]);
        assert_eq!(seconds(1000, 1_000_000, 1000), 3600);
        assert_eq!(seconds(1000, 1060, 0), 30, "the clock was set back");
        assert_eq!(seconds(1000, 900, 1000), 0);
    }
}
