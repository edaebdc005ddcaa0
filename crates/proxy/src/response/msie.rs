//! What old browsers need: `msie_refresh` and `msie_padding`.

use balanza_message::Header;

use super::{HTML, Local, Unsent, send};
use crate::exchange::Exchange;

/// Whether the client names itself as Internet Explorer, by NGINX's reading.
pub fn is_msie(x: &Exchange) -> bool {
    let agent = x.request_field(Header::UserAgent).unwrap_or_default();
    find(agent, b"MSIE ").is_some_and(|at| at + 7 < agent.len()) && find(agent, b"Opera").is_none()
}

/// Whether the client may show a page of its own in the place of a short one.
pub fn wants_padding(x: &Exchange) -> bool {
    let agent = x.request_field(Header::UserAgent).unwrap_or_default();
    let is_chrome = || find(agent, b"Gecko/").is_none() && find(agent, b"Chrome/").is_some();
    is_msie(x) || find(agent, b"Opera").is_none() && is_chrome()
}

/// Makes a page long enough.
pub fn pad(page: &mut Vec<u8>) {
    for _ in 0..6 {
        page.extend_from_slice(b"<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n");
    }
}

/// Sends a page that leads to `target`, in place of a redirect.
///
/// # Errors
/// As [`send`].
pub async fn send_refresh(x: &mut Exchange, target: &[u8]) -> Result<(), Unsent> {
    let mut page = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    for byte in target {
        if byte.is_ascii_control() || !byte.is_ascii() || b" \"%'".contains(byte) {
            page.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            page.push(*byte);
        }
    }
    page.extend_from_slice(b"\"></head><body></body></html>\r\n");
    send(x, Local { status: 200, content_type: HTML, body: &page, field: None }).await
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
