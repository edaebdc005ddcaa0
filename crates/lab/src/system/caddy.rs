//! Caddyfile.
//!
//! Equal to nginx.conf of the same task as far as the two can be: one processor, no log, time-outs, connections kept or
//! not, and failed requests that go on to another server. What stays different: Caddy has no limit of clients and no
//! backlog to set, and does not pass over a server for ten seconds after a failure. Its hashes are rendezvous hashes: a
//! key stays with its server when others leave, as with NGINX's `consistent`.

use std::fmt::Write;

use super::Setup;
use super::method::Method;

/// Whether Caddy can do it. Errors: why not, in words.
pub(super) fn supports(method: &Method, weights: &[u32]) -> Result<(), String> {
    policy(method)?;
    // Version 2.7 has weights for round robin alone.
    match weights.iter().any(|weight| *weight != 1) {
        true => Err("the lab has no weights for Caddy, which came with 2.7 and for round robin only".into()),
        false => Ok(()),
    }
}

/// What follows `lb_policy`. Errors: Caddy has none like it.
fn policy(method: &Method) -> Result<String, String> {
    let spec = &method.spec;
    match method.name() {
        name @ ("round_robin" | "least_conn" | "random" | "ip_hash") => Ok(name.into()),
        "two_choices" if spec.choice("by") == "least_conn" => Ok(format!("random_choose {}", spec.number("choices"))),
        "two_choices" | "least_time" => Err("Caddy does not measure times to choose by".into()),
        "hash" if spec.number("balance_factor") == 0 => key(method.key().unwrap_or_default()),
        "hash" => Err("Caddy's hashes have no balance_factor".into()),
        name => Err(format!("Caddy has no {name}")),
    }
}

/// The policy for a key in NGINX's variables.
fn key(key: &str) -> Result<String, String> {
    let plain = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match key {
        "$request_uri" => Ok("uri_hash".into()),
        "$remote_addr" | "$binary_remote_addr" => Ok("ip_hash".into()),
        // Without the field Caddy takes any server.
        _ => match key.strip_prefix("$http_").filter(plain) {
            Some(name) => Ok(format!("header {}", name.replace('_', "-"))),
            // Its policy for cookies sets a cookie of its own.
            None => Err(format!("Caddy has no hash of the key {key}")),
        },
    }
}

/// The whole file. Errors: see [`supports`].
pub(super) fn text(setup: &Setup<'_>, method: &Method) -> Result<String, String> {
    let keepalive = match setup.keep_alive {
        true => "keepalive 75s\n\t\t\tkeepalive_idle_conns 8192\n\t\t\tkeepalive_idle_conns_per_host 8192",
        false => "keepalive off",
    };
    let mut text = format!(
        "{{
\tadmin off
\tauto_https off
\tgrace_period 1s
\tstorage file_system temp
\tlog {{
\t\toutput stderr
\t\tlevel ERROR
\t}}
\tservers {{
\t\tprotocols h1
\t}}
}}

http://:{port} {{
\tbind 127.0.0.1
\treverse_proxy {{
",
        port = setup.port
    );
    for server in setup.servers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\t\tto {} # {}", server.address, super::configuration::remark(&server.name));
    }
    let _ = write!(
        text,
        "\t\tlb_policy {policy}
\t\t# A request that a server did not answer goes to another one, at once, as in NGINX.
\t\tlb_retries 3
\t\ttransport http {{
\t\t\tdial_timeout 75s
\t\t\tresponse_header_timeout 75s
\t\t\t{keepalive}
\t\t\tcompression off
\t\t\tversions 1.1
\t\t}}
\t}}
}}
",
        policy = policy(method)?
    );
    Ok(text)
}
