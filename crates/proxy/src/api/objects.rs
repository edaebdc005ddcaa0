//! Values that several objects have.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::metrics::{BUCKETS, Requests, Times, upper_bound};

/// The bounds of histograms, in milliseconds.
const BOUNDS: [u64; 14] = [5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000];

/// A time in ISO 8601, to the millisecond, in UTC.
pub fn timestamp(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let time = jiff::Timestamp::from_millisecond(i64::try_from(millis).unwrap_or(i64::MAX)).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A time as a directive has it.
pub fn duration(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// Nanoseconds in whole milliseconds, rounded.
pub fn millis(nanos: u64) -> u64 {
    nanos.saturating_add(500_000) / 1_000_000
}

/// Responses by class and by status.
pub fn responses(statuses: &BTreeMap<u16, u64>, classes: [u64; 5]) -> Value {
    let codes: Map<String, Value> =
        statuses.iter().map(|(status, count)| (status.to_string(), Value::from(*count))).collect();
    let total: u64 = classes.iter().sum();
    let [c1, c2, c3, c4, c5] = classes;
    json!({ "1xx": c1, "2xx": c2, "3xx": c3, "4xx": c4, "5xx": c5, "codes": codes, "total": total })
}

/// How many statuses each class has.
pub fn classes(statuses: &BTreeMap<u16, u64>) -> [u64; 5] {
    let mut classes = [0; 5];
    for (status, count) in statuses {
        let class = usize::from(status / 100).checked_sub(1);
        if let Some(class) = class.and_then(|class| classes.get_mut(class)) {
            *class += count;
        }
    }
    classes
}

/// The requests of a zone, without those in flight.
pub fn requests(of: &Requests, in_flight: u64) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("requests".into(), json!(of.ended() + in_flight));
    object.insert("responses".into(), responses(&of.statuses, classes(&of.statuses)));
    object.insert("discarded".into(), json!(of.discarded));
    object.insert("received".into(), json!(of.received));
    object.insert("sent".into(), json!(of.sent));
    object
}

/// Times in the buckets of the API. A time counts in the first bucket that is wholly above its own, which is a quarter of
/// the time wide at most.
pub fn histogram(times: &Times) -> Value {
    let mut buckets = [0; BOUNDS.len() + 1];
    for (bucket, count) in times.buckets.iter().enumerate().take(BUCKETS) {
        let end = upper_bound(bucket);
        let place = BOUNDS.iter().position(|bound| end <= bound * 1_000_000).unwrap_or(BOUNDS.len());
        buckets[place] += count;
    }
    let names = BOUNDS.iter().map(u64::to_string).chain(std::iter::once("inf".to_owned()));
    let buckets: Map<String, Value> = names.zip(buckets.map(Value::from)).collect();
    json!({ "count": times.count(), "sum": millis(times.sum), "buckets": buckets })
}

/// What `?fields=` leaves of an object, or of each object in a collection.
pub fn only_fields(value: Value, fields: &[&str], is_collection: bool) -> Value {
    match value {
        Value::Array(list) => Value::Array(list.into_iter().map(|value| only_fields(value, fields, false)).collect()),
        Value::Object(object) if is_collection => {
            let of_each = object.into_iter().map(|(name, value)| (name, only_fields(value, fields, false)));
            Value::Object(of_each.collect())
        }
        Value::Object(object) => {
            Value::Object(object.into_iter().filter(|(name, _)| fields.contains(&name.as_str())).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram;

    #[test]
    fn times_are_as_in_the_api() {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(1_700_000_000_042)), "2023-11-14T22:13:20.042Z");
        assert_eq!(duration(Duration::from_secs(10)), "10s");
        assert_eq!(duration(Duration::from_millis(1500)), "1500ms");
        assert_eq!((millis(1_499_999), millis(1_500_000)), (1, 2));
    }

    #[test]
    fn buckets_hold_what_is_below_them() {
        let recorded = Histogram::default();
        [1_000_000, 30_000_000, 20_000_000_000].iter().for_each(|time| recorded.record(*time));
        let mut times = Times::default();
        times.add(&recorded);
        let found = histogram(&times);
        assert_eq!((&found["count"], &found["sum"]), (&json!(3), &json!(20_031)));
        let filled: Vec<&String> = found["buckets"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(_, n)| **n == json!(1))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(filled, ["5", "50", "inf"]);
    }

    #[test]
    fn fields_are_those_of_each_object() {
        let zones = json!({ "a": { "requests": 1, "sent": 2 }, "b": { "requests": 3, "sent": 4 } });
        assert_eq!(only_fields(zones, &["sent"], true), json!({ "a": { "sent": 2 }, "b": { "sent": 4 } }));
        let one = json!({ "requests": { "name": 1 }, "responses": { "noerror": 2 } });
        assert_eq!(only_fields(one, &["requests"], false), json!({ "requests": { "name": 1 } }));
        assert_eq!(only_fields(json!([{ "id": 1, "pid": 2 }]), &["id"], true), json!([{ "id": 1 }]));
    }
}
