//! `stub_status`: the connections and requests of all workers.

use std::io::Write;

use balanza_message::Method;

use crate::exchange::Exchange;
use crate::metrics::Connections;
use crate::response::{self, Local};
use crate::step::Step;

/// Answers with the numbers, in NGINX's form: programs read it by this template.
pub async fn serve(x: &mut Exchange) -> Step {
    if !matches!(x.request.method, Method::Get | Method::Head) {
        return Step::Error(405);
    }
    let mut text = Vec::with_capacity(160);
    // Nothing fails that writes to a vector.
    let _ = write_numbers(&x.running().connections(), &mut text);
    let local = Local { status: 200, content_type: b"text/plain", body: &text, field: None };
    match response::send(x, local).await {
        Ok(()) => Step::Sent,
        Err(unsent) => unsent.step(x),
    }
}

fn write_numbers(now: &Connections, out: &mut Vec<u8>) -> std::io::Result<()> {
    let handled = now.accepted.saturating_sub(now.dropped);
    writeln!(out, "Active connections: {} ", now.active)?;
    writeln!(out, "server accepts handled requests")?;
    writeln!(out, " {} {handled} {} ", now.accepted, now.requests)?;
    writeln!(out, "Reading: {} Writing: {} Waiting: {} ", now.reading, now.writing(), now.idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_form_of_nginx() {
        let now = Connections {
            accepted: 16,
            dropped: 2,
            active: 9,
            idle: 4,
            reading: 2,
            requests: 31,
            ..Connections::default()
        };
        let mut text = Vec::new();
        write_numbers(&now, &mut text).unwrap();
        let expected =
            "Active connections: 9 \nserver accepts handled requests\n 16 14 31 \nReading: 2 Writing: 3 Waiting: 4 \n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
