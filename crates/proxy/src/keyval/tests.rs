use balanza_config::model::KeyvalKind;
use proptest::prelude::*;

use super::*;

fn zone(kind: KeyvalKind, size: u64) -> Pairs {
    Pairs::new(&KeyvalZone { name: "z".into(), size, state: None, timeout: None, kind })
}

fn change(key: &str, value: &str) -> Change {
    Change { key: key.into(), value: Some(value.into()), expire: None }
}

fn found(pairs: &Pairs, key: &str) -> String {
    pairs.find(key.as_bytes()).map_or("-".into(), |value| String::from_utf8(value).unwrap())
}

#[test]
fn pairs_are_added_changed_and_removed() {
    let pairs = zone(KeyvalKind::Text, 1 << 16);
    pairs.add(vec![change("a", "1"), change("b", "2")]).unwrap().unwrap();
    assert_eq!(pairs.add(vec![change("c", "3"), change("a", "4")]).map(drop), Err(Unchanged::Exists));
    assert_eq!(pairs.set(vec![change("c", "3")]).map(drop), Err(Unchanged::Missing));
    pairs.set(vec![change("a", "5"), Change { key: b"b".to_vec(), value: None, expire: None }]).unwrap().unwrap();
    assert_eq!((found(&pairs, "a"), found(&pairs, "b"), found(&pairs, "c")), ("5".into(), "-".into(), "-".into()));
    pairs.clear().unwrap();
    assert!(pairs.all().is_empty());
}

#[test]
fn a_full_zone_is_as_before() {
    let pairs = zone(KeyvalKind::Text, 3 * (PAIR + 2));
    pairs.add(vec![change("a", "1"), change("b", "2")]).unwrap().unwrap();
    assert_eq!(pairs.add(vec![change("c", "3"), change("d", "4")]).map(drop), Err(Unchanged::Full));
    assert_eq!(pairs.set(vec![change("a", &"x".repeat(1000))]).map(drop), Err(Unchanged::Full));
    assert_eq!(pairs.all().len(), 2);
    assert_eq!(found(&pairs, "a"), "1");
    pairs.add(vec![change("c", "3")]).unwrap().unwrap();
}

#[test]
fn a_pair_ends_after_its_time() {
    let conf = KeyvalZone {
        name: "z".into(),
        size: 1 << 16,
        state: None,
        timeout: Some(Duration::from_secs(3600)),
        kind: KeyvalKind::Text,
    };
    let pairs = Pairs::new(&conf);
    let soon = Change { expire: Some(Duration::ZERO), ..change("a", "1") };
    pairs.add(vec![soon, change("b", "2")]).unwrap().unwrap();
    assert_eq!((found(&pairs, "a"), found(&pairs, "b")), ("-".into(), "2".into()));
    assert_eq!(pairs.all().len(), 1);
    pairs.add(vec![change("a", "3")]).unwrap().unwrap();
    assert_eq!(found(&pairs, "a"), "3");
}

#[test]
fn the_smallest_network_holds() {
    let pairs = zone(KeyvalKind::Ip, 1 << 16);
    let keys = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.0-10.1.2.9", "2001:db8::/32"];
    pairs.add(keys.iter().map(|key| change(key, key)).collect()).unwrap().unwrap();
    let of = |address: &str| found(&pairs, address);
    assert_eq!(of("10.1.2.3"), "10.1.2.3");
    assert_eq!(of("10.1.2.4"), "10.1.2.0-10.1.2.9");
    assert_eq!(of("10.1.9.9"), "10.1.0.0/16");
    assert_eq!((of("10.9.9.9"), of("11.0.0.1"), of("2001:db8::7")), ("10.0.0.0/8".into(), "-".into(), keys[4].into()));
    assert_eq!(pairs.find(&[10, 1, 2, 3]), Some(b"10.1.2.3".to_vec()));
    assert_eq!(pairs.add(vec![change("10.1.2.3.4", "")]).map(drop), Err(Unchanged::Format));
    assert_eq!(
        pairs.add(vec![change("10.1.0.9/16", "")]).map(drop),
        Err(Unchanged::Format),
        "another name of the same"
    );
}

#[test]
fn pairs_are_read_from_their_file() {
    let directory = tempfile::tempdir().unwrap();
    let conf = KeyvalZone {
        name: "z".into(),
        size: 1 << 16,
        state: Some(directory.path().join("state")),
        timeout: Some(Duration::from_secs(3600)),
        kind: KeyvalKind::Prefix,
    };
    let pairs = Pairs::new(&conf);
    pairs.add(vec![change("/a", "1"), change("/a/b", "2"), change("\"", "3")]).unwrap().unwrap();
    let again = Pairs::new(&conf);
    let (mut left, right) = (pairs.all(), again.all());
    // The file has milliseconds.
    for (_, pair) in &mut left {
        pair.expires = pair.expires.map(|time| Duration::from_millis(time.as_millis() as u64));
    }
    assert_eq!(left, right);
    assert_eq!(
        (found(&again, "/a/bc"), found(&again, "/ab"), found(&again, "/")),
        ("2".into(), "1".into(), "-".into())
    );
}

proptest! {
    #[test]
    fn the_longest_prefix_holds(keys in prop::collection::btree_set("[ab]{0,5}", 0..12), text in "[ab]{0,7}", gone in "[ab]{0,3}") {
        let pairs = zone(KeyvalKind::Prefix, 1 << 16);
        pairs.add(keys.iter().map(|key| change(key, key)).collect()).unwrap().unwrap();
        let _ = pairs.set(vec![Change { key: gone.clone().into_bytes(), value: None, expire: None }]);
        let left = keys.iter().filter(|key| **key != gone && text.starts_with(key.as_str()));
        let longest = left.max_by_key(|key| key.len());
        prop_assert_eq!(pairs.find(text.as_bytes()), longest.map(|key| key.clone().into_bytes()));
    }
}
