//! Distinguished names and times of certificates, written as OpenSSL writes them.

use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// OpenSSL's short names of attributes that occur in names.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// `CN=a,O=b`: the last attribute first, with escapes (RFC 2253).
pub fn rfc2253(name: &X509Name<'_>) -> String {
    let sets: Vec<String> = name
        .iter()
        .map(|set| {
            let parts: Vec<String> =
                set.iter().map(|attribute| format!("{}={}", key(attribute), escaped(attribute.attr_value()))).collect();
            parts.into_iter().rev().collect::<Vec<_>>().join("+")
        })
        .collect();
    sets.into_iter().rev().collect::<Vec<_>>().join(",")
}

/// `/O=b/CN=a`: in order, without escapes except of what cannot be printed.
pub fn legacy(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for attribute in name.iter_attributes() {
        text.push('/');
        text.push_str(&key(attribute));
        text.push('=');
        for byte in attribute.attr_value().data {
            match byte {
                b' '..=b'~' => text.push(char::from(*byte)),
                byte => text.push_str(&format!("\\x{byte:02X}")),
            }
        }
    }
    text
}

fn key(attribute: &AttributeTypeAndValue<'_>) -> String {
    let id = attribute.attr_type().to_id_string();
    ATTRIBUTES.iter().find(|(known, _)| *known == id).map_or(id, |(_, name)| name.to_string())
}

/// A value with the escapes of RFC 2253; bytes that are not ASCII as hexadecimal digits of UTF-8.
fn escaped(value: &Any<'_>) -> String {
    let text = utf8(value);
    let mut out = String::new();
    let last = text.len().wrapping_sub(1);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', char::from(*byte)]),
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\{byte:02X}")),
        }
    }
    out
}

/// A string of any of ASN.1's kinds.
fn utf8(value: &Any<'_>) -> Vec<u8> {
    match value.tag() {
        Tag::BmpString => {
            let units: Vec<u16> =
                value.data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units).into_bytes()
        }
        // T.61, in practice ISO 8859-1.
        Tag::T61String => value.data.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
        _ => value.data.to_vec(),
    }
}

/// `Nov  1 12:00:00 2026 GMT`.
pub fn time(time: ASN1Time) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(at.month())) - 1];
    format!("{month} {:>2} {:02}:{:02}:{:02} {} GMT", at.day(), at.hour(), at.minute(), at.second(), at.year())
}
