//! `expires`: until when a response may be kept.

use std::time::{Duration, UNIX_EPOCH};

use balanza_config::model::{Expires, ExpiresRule};
use balanza_message::Header;

use super::head::has_usual_status;
use crate::conditions::parse_date;
use crate::dates;
use crate::exchange::Exchange;
use crate::undecided::Undecided;
use crate::variables;

/// Sets Expires and Cache-Control, in place of those of a server.
///
/// # Errors
/// A regular expression is undecided.
pub fn set(x: &mut Exchange, rule: &ExpiresRule) -> Result<(), Undecided> {
    if !has_usual_status(x.status) || x.route.subrequest {
        return Ok(());
    }
    let expires = match rule {
        ExpiresRule::Fixed(expires) => *expires,
        ExpiresRule::Dynamic { value, modified } => {
            let mut text = Vec::new();
            variables::render(value, x, &mut text)?;
            // A value that is none is as good as `off`.
            Expires::read(&text, *modified).unwrap_or(Expires::Off)
        }
    };
    let now = i64::try_from(dates::second()).unwrap_or(i64::MAX);
    let changed = x.reply.fields.find(Header::LastModified).and_then(parse_date).and_then(|at| i64::try_from(at).ok());
    let Some((date, control)) = texts(expires, now, changed) else { return Ok(()) };
    replace(x, Header::Expires, b"Expires", date.as_bytes());
    replace(x, Header::CacheControl, b"Cache-Control", control.as_bytes());
    Ok(())
}

/// Expires and Cache-Control at this time, for what has changed at that time.
fn texts(expires: Expires, now: i64, changed: Option<i64>) -> Option<(String, String)> {
    let (at, age) = match expires {
        Expires::Off => return None,
        Expires::Epoch => return Some(("Thu, 01 Jan 1970 00:00:01 GMT".into(), "no-cache".into())),
        Expires::Max => return Some(("Thu, 31 Dec 2037 23:55:55 GMT".into(), "max-age=315360000".into())),
        Expires::After(0) | Expires::Modified(0) => (now, 0),
        Expires::Daily(second) => {
            let at = next(second, now);
            (at, at - now)
        }
        Expires::After(seconds) => (now.saturating_add(seconds), seconds),
        Expires::Modified(seconds) => {
            let at = changed.unwrap_or(now).saturating_add(seconds);
            (at, if changed.is_some() { at - now } else { seconds })
        }
    };
    let negative = matches!(expires, Expires::After(seconds) | Expires::Modified(seconds) if seconds < 0) || age < 0;
    let control = if negative { "no-cache".to_string() } else { format!("max-age={age}") };
    // Dates end with the year 9999.
    let at = u64::try_from(at).unwrap_or(0).min(253_402_300_799);
    Some((httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at)), control))
}

/// When it is this second of the day for the next time, by local time.
fn next(second: u64, now: i64) -> i64 {
    let zone = jiff::tz::TimeZone::system();
    let Ok(midnight) = jiff::Timestamp::from_second(now).map(|now| now.to_zoned(zone.clone()).date()) else {
        return now;
    };
    // By the clock on the wall, which days of 23 and 25 hours have too.
    let at = |days: i64| {
        let span = jiff::Span::new().try_days(days)?.try_seconds(second as i64)?;
        midnight.at(0, 0, 0, 0).checked_add(span)?.to_zoned(zone.clone()).map(|time| time.timestamp().as_second())
    };
    match at(0) {
        Ok(time) if time > now => time,
        _ => at(1).unwrap_or(now),
    }
}

/// A field in place of all of its name: where the first of them was, or at the end.
fn replace(x: &mut Exchange, header: Header, name: &[u8], value: &[u8]) {
    if x.reply.fields.find(header).is_none() {
        return x.reply.fields.push(name, value);
    }
    let mut first = true;
    x.reply.fields.change(header, |_| std::mem::take(&mut first).then(|| value.to_vec()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    #[test]
    fn ages_follow_from_times() {
        let control = |expires, changed| texts(expires, NOW, changed).unwrap().1;
        assert_eq!(control(Expires::After(3600), None), "max-age=3600");
        assert_eq!(control(Expires::After(-1), None), "no-cache");
        assert_eq!(control(Expires::Modified(3600), Some(NOW - 600)), "max-age=3000");
        assert_eq!(control(Expires::Modified(3600), Some(NOW - 4000)), "no-cache");
        // Older than its file, even if it has not expired yet.
        assert_eq!(control(Expires::Modified(-1), Some(NOW + 600)), "no-cache");
        assert_eq!(control(Expires::Modified(3600), None), "max-age=3600");
        assert_eq!(control(Expires::Modified(0), Some(NOW - 600)), "max-age=0");
        assert_eq!(texts(Expires::Off, NOW, None), None);
        let (date, _) = texts(Expires::After(i64::MAX), NOW, None).unwrap();
        assert_eq!(date, "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_time_of_the_day_is_the_next_one() {
        for second in [0, 1, 43_200, 86_399] {
            let at = next(second, NOW);
            assert!(at > NOW && at <= NOW + 86_400 + 3_600, "{second}: {at}");
            // Just before it is still the same one, and at it there is another.
            assert_eq!(next(second, at - 1), at);
            assert!(next(second, at) > at);
        }
    }
}
