//! The last phase: what is counted, and the access log.

use balanza_net::clock;

use super::traces;
use crate::access_log::compose;
use crate::exchange::Exchange;
use crate::variables;

/// Counts the request for its zone, and writes it to the access logs of its location.
pub fn log(x: &mut Exchange) {
    let answered = if x.sent.bytes > 0 { x.status } else { 0 };
    let (received, time) = (x.head_length + x.body.wire, clock::recent() - x.started);
    x.leave_zone();
    let running = x.running();
    running.zones[x.server().status_zone].record(answered, received, x.sent.bytes, time);
    if let Some(zone) = x.location().settings.location_zone {
        running.location_zones[zone].record(answered, received, x.sent.bytes, time);
    }
    if x.values.trace.is_some() {
        traces::end(x);
    }
    write(x);
}

/// Writes the request to the access logs of its location.
pub fn write(x: &mut Exchange) {
    if x.location().settings.access_logs.is_empty() {
        return;
    }
    let location = x.location().clone();
    let mut value = std::mem::take(&mut x.scratch);
    let mut line = std::mem::take(&mut x.line);
    for log in &location.settings.access_logs {
        if compose(log, &mut line, &mut value, |variable, out| variables::value(variable, x, out)) {
            x.running().write_access_log(log, &line, &value);
        }
    }
    x.scratch = value;
    x.line = line;
}
