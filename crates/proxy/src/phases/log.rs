//! The last phase: the access log.

use crate::access_log::compose;
use crate::exchange::Exchange;
use crate::variables;

/// Writes the request to the access logs of its location.
pub fn log(x: &mut Exchange) {
    if x.location().settings.access_logs.is_empty() {
        return;
    }
    let location = x.location().clone();
    let mut value = std::mem::take(&mut x.scratch);
    let mut line = std::mem::take(&mut x.line);
    for log in &location.settings.access_logs {
        if compose(log, &mut line, &mut value, |variable, out| variables::value(variable, x, out)) {
            x.site().write_access_log(log, &line, &value);
        }
    }
    x.scratch = value;
    x.line = line;
}
