//! What is known of the client of a request.

use balanza_config::template::{ClientValue, Variable};

use crate::exchange::Exchange;
use crate::values::{of_header, of_peer};

/// Appends a variable's value; false when it has none.
pub fn value(variable: &ClientValue, x: &Exchange, out: &mut Vec<u8>) -> bool {
    match variable {
        ClientValue::RealIpRemoteAddr => of_peer(&Variable::RemoteAddr, x.client().peer, out),
        ClientValue::RealIpRemotePort => of_peer(&Variable::RemotePort, x.client().peer, out),
        _ => x.client().proxy_protocol.get().is_some_and(|header| of_header(variable, header, out)),
    }
}
