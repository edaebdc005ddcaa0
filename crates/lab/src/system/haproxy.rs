//! haproxy.cfg.
//!
//! Equal to nginx.conf of the same task as far as the two can be: one thread, no log, time-outs, backlog, connections
//! kept or not, and failed requests that go on to another server. What stays different: HAProxy does not pass over a
//! server for ten seconds after a failure, as NGINX does, and its hashes are others: equal keys go to one server in
//! both, but not to the same.

use std::fmt::Write;

use super::method::Method;
use super::{Program, Programs, Setup};

/// The greatest weight.
const WEIGHT_MAX: u32 = 256;

/// The first version with `balance hash EXPRESSION`.
const WITH_EXPRESSIONS: [u32; 3] = [2, 6, 0];

/// Whether this HAProxy can do it. Errors: why not, in words.
pub(super) fn supports(haproxy: &Program, method: &Method, weights: &[u32]) -> Result<(), String> {
    let lines = lines(method)?;
    if lines[0].starts_with("balance hash ") && haproxy.numbers() < WITH_EXPRESSIONS {
        return Err(format!("HAProxy {} cannot hash what 2.6 can", haproxy.version));
    }
    if weights.iter().any(|weight| *weight > WEIGHT_MAX) {
        return Err(format!("HAProxy's weights go up to {WEIGHT_MAX}"));
    }
    Ok(())
}

/// The lines that choose the algorithm, `balance …` first. Errors: HAProxy has none like it.
fn lines(method: &Method) -> Result<Vec<String>, String> {
    let spec = &method.spec;
    let alone = |line: &str| Ok(vec![line.to_owned()]);
    match method.name() {
        "round_robin" => alone("balance roundrobin"),
        "least_conn" => alone("balance leastconn"),
        "random" => alone("balance random(1)"),
        "two_choices" if spec.choice("by") == "least_conn" => {
            alone(&format!("balance random({})", spec.number("choices")))
        }
        "two_choices" | "least_time" => Err("HAProxy does not measure times to choose by".into()),
        "ip_hash" => Ok(vec!["balance source".into(), MIXED.into()]),
        "hash" => {
            let balance = key(method.key().unwrap_or_default())?;
            Ok(match (spec.switch("consistent"), spec.number("balance_factor")) {
                (false, 0) => vec![balance, MIXED.into()],
                (true, 0) => vec![balance, CONSISTENT.into()],
                (_, factor) => vec![balance, CONSISTENT.into(), format!("hash-balance-factor {factor}")],
            })
        }
        "bounded_hash" => {
            let balance = key(method.key().unwrap_or_default())?;
            Ok(vec![balance, CONSISTENT.into(), format!("hash-balance-factor {}", spec.number("balance_factor"))])
        }
        name => Err(format!("HAProxy has no {name}")),
    }
}

/// A hash over the list of servers. Its bits are mixed: sums over addresses that differ in one byte would miss servers.
const MIXED: &str = "hash-type map-based sdbm avalanche";

/// A ring of points.
const CONSISTENT: &str = "hash-type consistent sdbm avalanche";

/// `balance …` for a key in NGINX's variables.
fn key(key: &str) -> Result<String, String> {
    let known = match key {
        "$request_uri" => Some("uri whole".to_owned()),
        "$uri" => Some("uri".into()),
        "$remote_addr" | "$binary_remote_addr" => Some("source".into()),
        _ => None,
    };
    let plain = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let named = |prefix: &str| key.strip_prefix(prefix).filter(|name| plain(name));
    let named = named("$arg_")
        .map(|name| format!("url_param {name}"))
        .or_else(|| named("$http_").map(|name| format!("hdr({})", name.replace('_', "-"))))
        .or_else(|| named("$cookie_").map(|name| format!("hash req.cook({name})")));
    known
        .or(named)
        .map(|balance| format!("balance {balance}"))
        .ok_or_else(|| format!("the lab has no words of HAProxy's for the key {key}"))
}

/// The whole file. Errors: see [`supports`].
pub(super) fn text(programs: &Programs, setup: &Setup<'_>, method: &Method) -> Result<String, String> {
    let lines = lines(method)?;
    let clients = programs.clients();
    let connections = match setup.keep_alive {
        // As NGINX does: any request may take any idle connection, and what is idle is kept.
        true => "    http-reuse always\n",
        false => "    option httpclose\n",
    };
    let mut text = format!(
        "global
    nbthread {workers}
    maxconn {clients}

defaults
    mode http
    maxconn {clients}
    backlog 4096
    timeout client 75s
    timeout http-keep-alive 75s
    timeout connect 75s
    timeout server 75s
    # A request that a server did not answer goes to another one, at once, as in NGINX.
    retries 3
    retry-on conn-failure empty-response response-timeout
    option redispatch 1
    # A request is given up when its client has gone, as in NGINX.
    option abortonclose

frontend clients
    bind 127.0.0.1:{port}
    default_backend servers

backend servers
",
        workers = setup.workers,
        port = setup.port,
    );
    for line in lines {
        text += &format!("    {line}\n");
    }
    text += connections;
    for (number, server) in (1..).zip(setup.servers) {
        let name = super::configuration::remark(&server.name);
        let purge = if setup.keep_alive { " pool-purge-delay 75s" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    server s{number} {} weight {}{purge}  # {name}", server.address, server.weight);
    }
    Ok(text)
}
