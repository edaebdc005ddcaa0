//! The configurations of a run.

use balanza_net::simulation::Random;

use super::plan::{Knobs, Place, TEXT};

/// Where the proxy listens.
pub const LISTEN: ([u8; 4], u16) = ([10, 0, 0, 1], 80);

/// The address of a server.
pub fn server_address(number: u64) -> ([u8; 4], u16) {
    ([10, 0, 1, number as u8], 80)
}

/// The locations that ask servers. They stay the same when the configuration changes, because what may happen to a
/// request depends on them.
pub fn places(random: &mut Random) -> Vec<Place> {
    (0..random.between(1, 5)).map(|_| place(random)).collect()
}

fn place(random: &mut Random) -> Place {
    let retries = random.percent(80);
    let mut place = Place {
        text: String::new(),
        retries,
        repeats_all: retries && random.percent(25),
        retries_503: retries && random.percent(30),
        tries: random.between(1, 4),
        replaces_503: random.percent(20),
        request_buffering: random.percent(60),
        rate: random.percent(15).then(|| random.between(2_000, 50_000)),
        ignores_abort: random.percent(20),
    };
    let on = |it: bool| if it { "on" } else { "off" };
    let mut text = String::new();
    let mut add = |directive: String| text += &format!("      {directive};\n");
    let next = match retries {
        false => "off".to_owned(),
        true => {
            let mut next = "error timeout invalid_header".to_owned();
            next += if place.retries_503 { " http_503" } else { "" };
            next + if place.repeats_all { " non_idempotent" } else { "" }
        }
    };
    add("proxy_pass http://app".to_owned());
    add(format!("proxy_next_upstream {next}"));
    add(format!("proxy_next_upstream_tries {}", place.tries));
    if random.percent(85) {
        add("proxy_http_version 1.1".to_owned());
        add("proxy_set_header Connection \"\"".to_owned());
    } else {
        add("proxy_http_version 1.0".to_owned());
        // A body of unknown length is buffered for such a server.
        place.request_buffering = true;
    }
    for timeout in ["connect", "read", "send"] {
        add(format!("proxy_{timeout}_timeout {}s", random.between(4, 20)));
    }
    add(format!("proxy_request_buffering {}", on(place.request_buffering)));
    add(format!("proxy_buffering {}", on(random.percent(70))));
    if random.percent(50) {
        add(format!("proxy_buffers {} {}k", random.between(4, 8), random.pick(&[4, 8])));
    }
    if random.percent(50) {
        add(format!("proxy_max_temp_file_size {}", random.pick(&["0", "1m"])));
    }
    if let Some(rate) = place.rate {
        add(format!("limit_rate {rate}"));
    }
    if random.percent(10) {
        add(format!("proxy_limit_rate {}", random.between(20_000, 200_000)));
    }
    if place.ignores_abort {
        add("proxy_ignore_client_abort on".to_owned());
    }
    if place.replaces_503 {
        add("proxy_intercept_errors on".to_owned());
        add("error_page 503 /replaced".to_owned());
    }
    if random.percent(15) {
        add("auth_request /allowed".to_owned());
    }
    if random.percent(15) {
        add("mirror /allowed".to_owned());
        add("mirror_request_body off".to_owned());
    }
    add(format!("client_body_buffer_size {}", random.pick(&["1k", "16k", "1m"])));
    place.text = text;
    place
}

/// A configuration. Paths are relative to a directory of the run.
pub fn configuration(knobs: &Knobs, places: &[Place], random: &mut Random) -> String {
    let mut upstream = random.pick(&["", "least_conn;", "random two;", "hash $uri consistent;", "ip_hash;"]).to_owned();
    for number in 0..knobs.servers {
        let ([a, b, c, d], port) = server_address(number);
        let weight = random.between(1, 3);
        upstream += &format!("\n    server {a}.{b}.{c}.{d}:{port} max_fails=0 weight={weight};");
    }
    if random.percent(80) {
        upstream += &format!("\n    keepalive {};", random.between(1, 8));
        if random.percent(30) {
            upstream += &format!("\n    keepalive_requests {};", random.between(1, 10));
        }
    }
    if knobs.authenticates > 0 {
        upstream += "\n    ntlm;";
    }
    if knobs.hedges {
        upstream += "\n    hedge percentile=50 min=0 window=1s; retry_budget ratio=100 min=100;";
    }
    let mut locations = String::new();
    for (number, place) in places.iter().enumerate() {
        locations += &format!("    location /p{number}/ {{\n{}    }}\n", place.text);
    }
    let mut settings = String::new();
    for timeout in ["client_header", "client_body", "send", "keepalive"] {
        settings += &format!("  {timeout}_timeout {}s;\n", random.between(4, 20));
    }
    if random.percent(20) {
        settings += &format!("  keepalive_requests {};\n", random.between(1, 4));
    }
    if random.percent(20) {
        settings += "  reset_timedout_connection on;\n";
    }
    let ([a, b, c, d], port) = LISTEN;
    format!(
        "error_log error.log info;
events {{ worker_connections 10000; }}
http {{
  access_log off;
  client_max_body_size 10m;
  client_body_temp_path client;
  proxy_temp_path proxy;
{settings}
  upstream app {{
    {upstream}
  }}
  server {{
    listen {a}.{b}.{c}.{d}:{port};
{locations}
    location /files/ {{ root .; }}
    location = /text {{ return 200 \"{TEXT}\"; }}
    location = /allowed {{ return 204; }}
    location = /replaced {{ return 503 replaced; }}
    location /tunnel/ {{
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection upgrade;
      proxy_set_header Upgrade $http_upgrade;
    }}
  }}
}}
"
    )
}
