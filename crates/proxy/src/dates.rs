//! The time as texts for fields and logs, which are made once a second.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use balanza_message::Fields;
use balanza_net::clock::{Nanos, now, recent, wall};

#[derive(Default)]
struct Texts {
    /// When the next second begins, on the monotonic clock.
    until: Nanos,
    second: u64,
    http: String,
    log: String,
    iso: String,
    error_log: String,
    syslog: String,
}

thread_local! {
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
                second,
                http: httpdate::fmt_http_date(time),
                log: zoned.strftime("%d/%b/%Y:%H:%M:%S %z").to_string(),
                iso: zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
                syslog: zoned.strftime("%b %e %H:%M:%S").to_string(),
                error_log: zoned.strftime("%Y/%m/%d %H:%M:%S").to_string(),
            };
        }
        use_texts(texts)
    })
}

/// Seconds since the Unix epoch, as in the Date field and the other texts. Expiry times of a response are computed from this,
/// because the clock may already be one second later.
pub fn second() -> u64 {
    with_texts(|texts| texts.second)
}

/// Adds a Date field.
pub fn push_date(fields: &mut Fields) {
    with_texts(|texts| fields.push(b"Date", texts.http.as_bytes()));
}

/// Appends `$time_local`.
pub fn write_log_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.log.as_bytes()));
}

/// Appends `$time_iso8601`.
pub fn write_iso_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.iso.as_bytes()));
}

/// Appends the time in a format of `strftime`, in GMT or in local time; false if it is not a format.
pub fn write_page_time(format: &[u8], gmt: bool, out: &mut Vec<u8>) -> bool {
    let time = UNIX_EPOCH + Duration::from_secs(wall().as_secs());
    let Ok(local) = jiff::Zoned::try_from(time) else { return false };
    let zoned = if gmt { local.with_time_zone(jiff::tz::TimeZone::UTC) } else { local };
    // What the C library calls GMT has another name here.
    let mut text = Vec::with_capacity(format.len());
    let mut rest = format;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        text.push(byte);
        if byte == b'%'
            && let Some((&kind, after)) = rest.split_first()
        {
            rest = after;
            match kind {
                b'Z' if gmt => {
                    text.pop();
                    text.extend_from_slice(b"GMT");
                }
                kind => text.push(kind),
            }
        }
    }
    match jiff::fmt::strtime::format(&text, &zoned) {
        Ok(text) => {
            out.extend_from_slice(text.as_bytes());
            true
        }
        Err(_) => false,
    }
}

/// Appends [`second`] plus `after` in the form of cookies, `Thu, 31-Dec-37 23:55:55 GMT`; the year has four digits after 2037,
/// as in NGINX.
pub fn write_cookie_time(after: Duration, out: &mut Vec<u8>) {
    write_cookie_second(second().saturating_add(after.as_secs()), out);
}

fn write_cookie_second(second: u64, out: &mut Vec<u8>) {
    let time = i64::try_from(second).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
    let time = time.unwrap_or(jiff::Timestamp::MAX).to_zoned(jiff::tz::TimeZone::UTC);
    let form = if time.year() > 2037 { "%a, %d-%b-%Y %H:%M:%S GMT" } else { "%a, %d-%b-%y %H:%M:%S GMT" };
    out.extend_from_slice(time.strftime(form).to_string().as_bytes());
}

/// Appends the time as in the error log.
pub fn write_error_log_time(out: &mut Vec<u8>) {
    with_texts(|texts| out.extend_from_slice(texts.error_log.as_bytes()));
}

/// Lends the time as in the messages of a syslog: `Jan  2 03:04:05`.
pub fn with_syslog_time(use_time: impl FnOnce(&str)) {
    with_texts(|texts| use_time(&texts.syslog));
}

#[cfg(test)]
mod tests {
    use balanza_message::Header;

    use super::*;

    #[test]
    fn the_second_is_that_of_the_date_also_when_the_clock_has_passed_it() {
        let date_and_second = || {
            let mut fields = Fields::default();
            push_date(&mut fields);
            let date = fields.find(Header::Date).unwrap();
            let date = httpdate::parse_http_date(std::str::from_utf8(date).unwrap()).unwrap();
            (date.duration_since(UNIX_EPOCH).unwrap().as_secs(), second())
        };
        now();
        let (date, first) = date_and_second();
        assert_eq!(date, first);
        // The loop does not call `now`, so the texts stay.
        while wall().as_secs() <= first {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(date_and_second(), (first, first));
        now();
        let (date, later) = date_and_second();
        assert_eq!(date, later);
        assert!(later > first, "{later}");
    }

    #[test]
    fn times_of_cookies() {
        let text = |second| {
            let mut text = Vec::new();
            write_cookie_second(second, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(0), "Thu, 01-Jan-70 00:00:00 GMT");
        assert_eq!(text(2_145_916_555), "Thu, 31-Dec-37 23:55:55 GMT");
        assert_eq!(text(2_145_916_555 + 86_400), "Fri, 01-Jan-2038 23:55:55 GMT");
    }
}
