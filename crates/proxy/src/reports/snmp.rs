//! A number from an SNMP agent; the protocol (version 2c) is the library's.

use balanza_config::model::ServerAddress;
use balanza_net::shortage::describe;
use snmp2::{AsyncSession, Error, Oid, Value};

/// Asks for one value. The session is made when there is none.
///
/// # Errors
/// What the log is to say.
pub async fn get(
    session: &mut Option<AsyncSession>,
    address: &ServerAddress,
    community: &str,
    oid: &[u32],
) -> Result<f64, String> {
    let ServerAddress::Inet(address) = address else { return Err("not an IP address".into()) };
    let session = match session {
        Some(session) => session,
        None => {
            let made = AsyncSession::new_v2c(address, community.as_bytes(), 1).await;
            session.insert(made.map_err(|error| describe(&error))?)
        }
    };
    let wanted: Vec<u64> = oid.iter().map(|part| u64::from(*part)).collect();
    let oid = Oid::from(&wanted).map_err(|_| "not an object identifier")?;
    let mut answer = session.get(&oid).await.map_err(|error| match error {
        Error::Send | Error::Receive => "cannot be reached".into(),
        error => error.to_string(),
    })?;
    if answer.error_status != 0 {
        return Err(format!("error status {}", answer.error_status));
    }
    let (_, value) = answer.varbinds.next().ok_or("empty answer")?;
    number(&value).ok_or_else(|| format!("not a number: {value:?}"))
}

/// The number that a value is: an integer of any kind, or a text like laLoad's "0.35".
fn number(value: &Value<'_>) -> Option<f64> {
    match *value {
        Value::Integer(number) => Some(number as f64),
        Value::Counter32(number) | Value::Unsigned32(number) => Some(f64::from(number)),
        Value::Counter64(number) => Some(number as f64),
        Value::OctetString(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds() {
        assert_eq!(number(&Value::Integer(35)), Some(35.0));
        assert_eq!(number(&Value::Unsigned32(7)), Some(7.0));
        assert_eq!(number(&Value::OctetString(b"0.35")), Some(0.35));
        assert_eq!(number(&Value::OctetString(b" 12 ")), Some(12.0));
        assert_eq!(number(&Value::OctetString(b"high")), None);
        assert_eq!(number(&Value::NoSuchInstance), None);
        assert_eq!(number(&Value::Null), None);
    }
}
