//! The version in a start line.

use crate::Version;

/// Reads "HTTP/1.x": `None` if it is no version at all, an error with the major number if it is not 1.
pub(crate) fn parse(text: &[u8]) -> Option<Result<Version, u8>> {
    let [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] = text else { return None };
    Some(match (major - b'0', minor - b'0') {
        (1, 0) => Ok(Version::Http10),
        (1, _) => Ok(Version::Http11),
        (other, _) => Err(other),
    })
}
