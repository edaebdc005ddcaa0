//! The preaccess phase: `limit_req`, then `limit_conn`.

use std::rc::Rc;
use std::time::Duration;

use balanza_config::log_text::Escaped;
use balanza_config::model::{Level, Location, RequestLimit};
use balanza_net::clock;

use super::waiting::wait;
use crate::exchange::Exchange;
use crate::limits::{Found, LONGEST_CONNECTION_KEY, RequestZone, Status};
use crate::step::Step;
use crate::variables;

/// Keys of `limit_req` are at most so long.
const LONGEST_REQUEST_KEY: usize = 65_535;

/// Counts the request, and rejects or delays it if there are too many. It is counted once: a redirect does not count.
///
/// # Errors
/// The response to a request that is rejected.
pub(super) async fn check(x: &mut Exchange, location: &Location) -> Result<(), Step> {
    let mut key = std::mem::take(&mut x.checks.key);
    let checked = check_with(x, location, &mut key).await;
    x.checks.key = key;
    checked
}

async fn check_with(x: &mut Exchange, location: &Location, key: &mut Vec<u8>) -> Result<(), Step> {
    if x.checks.requests.is_none()
        && !location.settings.limits.requests.is_empty()
        && let Some(pause) = limit_requests(x, location, key)?
    {
        wait(x, pause).await?;
    }
    if x.checks.connections.is_none() && !location.settings.limits.connections.is_empty() {
        limit_connections(x, location, key)?;
    }
    Ok(())
}

/// Asks all zones before the request is counted in any. Returns how long it has to wait.
fn limit_requests(x: &mut Exchange, location: &Location, key: &mut Vec<u8>) -> Result<Option<Duration>, Step> {
    let limits = &location.settings.limits;
    let running = Rc::clone(x.running());
    let zones = &running.limits.requests;
    let now = clock::recent() / 1_000_000;
    // The limits that were only looked at, with their keys.
    let mut looked: Vec<(&RequestLimit, Vec<u8>)> = Vec::new();
    let mut worst: Option<(&RequestZone, u64)> = None;
    let mut longest = 0;
    let (delayed, rejected) = match limits.request_dry_run {
        true => (Status::DelayedDryRun, Status::RejectedDryRun),
        false => (Status::Delayed, Status::Rejected),
    };
    let count = |zone: &RequestZone, limit: &RequestLimit, excess: u64| {
        let pause = zone.wait(excess, limit);
        zone.counts().add(if pause == 0 { Status::Passed } else { delayed });
        pause
    };
    let mut counted = false;
    for (index, limit) in limits.requests.iter().enumerate() {
        let zone = &zones[limit.zone];
        key.clear();
        variables::render(&zone.key, x, key)?;
        if key.is_empty() {
            continue;
        }
        if key.len() > LONGEST_REQUEST_KEY {
            too_long(x, zone.key_text(), key, LONGEST_REQUEST_KEY);
            continue;
        }
        let last = index + 1 == limits.requests.len();
        let found = if last { zone.take(key, limit, now) } else { zone.look(key, limit, now) };
        match found {
            Found::Within(excess) if last => {
                counted = true;
                longest = count(zone, limit, excess);
                worst = Some((zone, excess));
            }
            Found::Within(_) => looked.push((limit, key.clone())),
            Found::Beyond(_) | Found::Full => {
                let name = &zone.name;
                if let Found::Beyond(excess) = found {
                    let (dry, excess) = (dry_run(limits.request_dry_run), Thousandths(excess));
                    let text = format_args!("limiting requests{dry}, excess: {excess} by zone \"{name}\"");
                    x.report(limits.request_level, text);
                } else {
                    x.report(Level::Alert, format_args!("could not allocate node in limit_req zone \"{name}\""));
                }
                zone.counts().add(rejected);
                x.checks.requests = Some(rejected);
                return if limits.request_dry_run { Ok(None) } else { Err(Step::Error(limits.request_status)) };
            }
        }
    }
    if !counted && looked.is_empty() {
        return Ok(None);
    }
    for (limit, key) in looked.iter().rev() {
        let zone = &zones[limit.zone];
        let Found::Within(excess) = zone.settle(key, now) else { continue };
        let pause = count(zone, limit, excess);
        if pause > longest {
            (longest, worst) = (pause, Some((zone, excess)));
        }
    }
    let Some((zone, excess)) = worst.filter(|_| longest > 0) else {
        x.checks.requests = Some(Status::Passed);
        return Ok(None);
    };
    let (dry, excess, name) = (dry_run(limits.request_dry_run), Thousandths(excess), &zone.name);
    let level = one_lower(limits.request_level);
    x.report(level, format_args!("delaying request{dry}, excess: {excess}, by zone \"{name}\""));
    x.checks.requests = Some(delayed);
    Ok(Some(Duration::from_millis(longest)).filter(|_| !limits.request_dry_run))
}

fn limit_connections(x: &mut Exchange, location: &Location, key: &mut Vec<u8>) -> Result<(), Step> {
    let limits = &location.settings.limits;
    let running = Rc::clone(x.running());
    for limit in &limits.connections {
        let zone = &running.limits.connections[limit.zone];
        key.clear();
        variables::render(&zone.key, x, key)?;
        if key.is_empty() {
            continue;
        }
        if key.len() > LONGEST_CONNECTION_KEY {
            too_long(x, zone.key_text(), key, LONGEST_CONNECTION_KEY);
            continue;
        }
        x.checks.connections = Some(Status::Passed);
        match zone.enter(key, limit.most) {
            Ok(place) => {
                zone.counts().add(Status::Passed);
                x.checks.places.push(place);
            }
            Err(reason) => {
                x.checks.places.clear();
                let rejected = if limits.connection_dry_run { Status::RejectedDryRun } else { Status::Rejected };
                zone.counts().add(rejected);
                x.checks.connections = Some(rejected);
                let (level, message) = reason.describe(limits, &zone.name);
                x.report(level, format_args!("{message}"));
                return if limits.connection_dry_run { Ok(()) } else { Err(Step::Error(limits.connection_status)) };
            }
        }
    }
    Ok(())
}

fn too_long(x: &Exchange, name: &str, key: &[u8], most: usize) {
    let key = Escaped(key);
    x.report(Level::Error, format_args!("the value of the \"{name}\" key is more than {most} bytes: \"{key}\""));
}

fn dry_run(dry: bool) -> &'static str {
    if dry { ", dry run" } else { "" }
}

/// Delays are logged one level lower than rejections.
fn one_lower(level: Level) -> Level {
    match level {
        Level::Error => Level::Warn,
        Level::Warn => Level::Notice,
        _ => Level::Info,
    }
}

/// A number of requests in thousandths.
struct Thousandths(u64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
