//! The file of a zone with `state`: a JSON object, as the API shows the pairs; those that expire have the time of it.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Pair;

/// Reads the pairs of a file; none if it does not exist or is not such a file.
pub fn read(path: &Path) -> Vec<(Vec<u8>, Pair)> {
    let Ok(text) = std::fs::read(path) else { return Vec::new() };
    let Ok(Value::Object(object)) = serde_json::from_slice(&text) else { return Vec::new() };
    let pair = |value: &Value| match value {
        Value::String(value) => Some(Pair { value: value.clone().into_bytes(), expires: None }),
        Value::Object(object) => {
            let value = object.get("value")?.as_str()?.as_bytes().to_vec();
            let expires = object.get("expires").and_then(Value::as_u64).map(Duration::from_millis);
            Some(Pair { value, expires })
        }
        _ => None,
    };
    object.iter().filter_map(|(key, value)| Some((key.clone().into_bytes(), pair(value)?))).collect()
}

/// Replaces the file.
///
/// # Errors
/// It has the pairs of before, and the next change tries again.
pub fn write(path: &Path, pairs: &BTreeMap<Vec<u8>, Pair>) -> io::Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = |pair: &Pair| match pair.expires {
        None => json!(text(&pair.value)),
        Some(expires) => json!({ "value": text(&pair.value), "expires": expires.as_millis() as u64 }),
    };
    let object: Map<String, Value> = pairs.iter().map(|(key, pair)| (text(key), value(pair))).collect();
    let written = Value::Object(object).to_string();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let replaced = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
        file.write_all(written.as_bytes())?;
        file.as_file().sync_data()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    });
    // The file may be the worker's to write where the directory is not.
    replaced.or_else(|_| std::fs::write(path, &written))
}
