//! The data plane's only clock: monotonic nanoseconds, and the wall clock's texts, made once a second.

use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the system's monotonic clock, which began when the machine did.
pub type Nanos = u64;

/// Now.
pub fn now() -> Nanos {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    let now = tv_sec as Nanos * 1_000_000_000 + tv_nsec as Nanos;
    RECENT.set(now);
    now
}

/// What [`now`] last said on this thread: every connection asks when an event wakes it, so this is at most one event
/// old, and costs no look at the clock.
pub fn recent() -> Nanos {
    RECENT.get()
}

/// The moment `duration` after [`recent`].
pub fn after(duration: Duration) -> Nanos {
    recent().saturating_add(nanos(duration))
}

/// A duration in nanoseconds; those of centuries are all the same.
pub fn nanos(duration: Duration) -> Nanos {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

/// Time since the Unix epoch.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[derive(Default)]
struct Texts {
    /// When the next second begins, on the monotonic clock.
    until: Nanos,
    /// The whole line.
    http: String,
    log: String,
    iso: String,
    error_log: String,
}

thread_local! {
    static RECENT: Cell<Nanos> = const { Cell::new(0) };
    static TEXTS: RefCell<Texts> = RefCell::default();
}

fn with_texts<T>(use_texts: impl FnOnce(&Texts) -> T) -> T {
    TEXTS.with_borrow_mut(|texts| {
        if recent() >= texts.until {
            let wall = wall();
            let second = wall.as_secs();
            let time = UNIX_EPOCH + Duration::from_secs(second);
            let zoned = jiff::Zoned::try_from(time)
                .unwrap_or_else(|_| jiff::Timestamp::UNIX_EPOCH.to_zoned(jiff::tz::TimeZone::UTC));
            *texts = Texts {
                until: now() + 1_000_000_000 - Nanos::from(wall.subsec_nanos()),
                http: format!("Date: {}\r\n", httpdate::fmt_http_date(time)),
                log: zoned.strftime("%d/%b/%Y:%H:%M:%S %z").to_string(),
                iso: zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
                error_log: zoned.strftime("%Y/%m/%d %H:%M:%S").to_string(),
            };
        }
        use_texts(texts)
    })
}

/// Appends a Date field.
pub fn write_date_field(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.http.as_bytes()));
}

/// Appends `$time_local`.
pub fn write_log_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.log.as_bytes()));
}

/// Appends `$time_iso8601`.
pub fn write_iso_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.iso.as_bytes()));
}

/// Appends a time as cookies have it: `Thu, 31-Dec-37 23:55:55 GMT`, the year in four digits after 2037, as in NGINX.
pub fn write_cookie_time(since_epoch: Duration, out: &mut Vec<u8>) {
    let time = i64::try_from(since_epoch.as_secs()).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
    let time = time.unwrap_or(jiff::Timestamp::MAX).to_zoned(jiff::tz::TimeZone::UTC);
    let form = if time.year() > 2037 { "%a, %d-%b-%Y %H:%M:%S GMT" } else { "%a, %d-%b-%y %H:%M:%S GMT" };
    out.extend_from_slice(time.strftime(form).to_string().as_bytes());
}

/// Appends the time as in the error log.
pub fn write_error_log_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.error_log.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cookies() {
        let text = |second| {
            let mut text = Vec::new();
            write_cookie_time(Duration::from_secs(second), &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(0), "Thu, 01-Jan-70 00:00:00 GMT");
        assert_eq!(text(2_145_916_555), "Thu, 31-Dec-37 23:55:55 GMT");
        assert_eq!(text(2_145_916_555 + 86_400), "Fri, 01-Jan-2038 23:55:55 GMT");
    }
}
