//! nginx.conf, for all that read it: Balanza, NGINX, NGINX with the module.
//!
//! Paths are relative to the prefix (`-p`), a directory that the lab makes, so that the file says the same in every run.

use std::fmt::Write;

use balanza_balancing::registry::Host;

use super::method::{Method, word};
use super::{Program, Programs, Setup};
use crate::plan::System;
use crate::target::LOAD_FIELD;

/// Idle connections to the servers that a worker keeps: more than there are users, so that none is closed for want of room.
const IDLE_MAX: u32 = 1024;

/// The first NGINX that keeps idle connections without being told.
const NGINX_THAT_KEEPS: [u32; 3] = [1, 29, 7];

/// The whole file.
pub(super) fn text(programs: &Programs, setup: &Setup<'_>, method: &Method) -> String {
    let clients = programs.clients();
    let mut text = String::new();
    if let (System::NginxBalanza, Some(module)) = (setup.system, &programs.module) {
        text += &format!("load_module {};\n", word(&module.to_string_lossy()));
    }
    if programs.root {
        // Else workers would be nobody's, who cannot write into the lab's directory.
        text += "user root;\n";
    }
    let head = format!(
        "worker_processes {workers};
worker_rlimit_nofile {files};
daemon off;
pid balancer.pid;
error_log stderr error;

events {{
    # A client and its server each.
    worker_connections {connections};
}}

http {{
    access_log off;
    keepalive_timeout 75s;
    keepalive_requests 1000000;

    # Debian's NGINX has them outside of this directory otherwise.
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
",
        workers = setup.workers,
        files = clients * 2 + 256,
        connections = clients * 2,
    );
    // What Balanza does not have it does not write files for.
    text.extend(head.split_inclusive('\n').filter(|line| *setup.system != System::Balanza || !is_of_nginx(line)));
    text + &upstream(programs, setup, method) + &server(setup)
}

/// The servers and the rule.
fn upstream(programs: &Programs, setup: &Setup<'_>, method: &Method) -> String {
    let mut text = "\n    upstream servers {\n        zone servers 1m;\n".to_owned();
    let of_nginx = if *setup.system == System::NginxBalanza { None } else { method.of_nginx() };
    let directive = of_nginx.unwrap_or_else(|| method.of_balanza());
    if !directive.is_empty() {
        text += &format!("        {directive};\n");
    }
    if *setup.system == System::Balanza && method.spec.entry().host == Host::Reports {
        text += &format!("        load_report header {LOAD_FIELD};\n");
    }
    for server in setup.servers {
        let weight = if server.weight == 1 { String::new() } else { format!(" weight={}", server.weight) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "        server {}{weight};  # {}",
            server.address,
            super::configuration::remark(&server.name)
        );
    }
    if setup.keep_alive {
        text += &format!("        keepalive {IDLE_MAX};\n        keepalive_requests 1000000;\n");
    } else if keeps_unasked(setup.system, programs.nginx.as_ref()) {
        text += "        keepalive 0;\n";
    }
    text + "    }\n"
}

/// Balanza reads the file as the newest NGINX does.
fn keeps_unasked(system: &System, nginx: Option<&Program>) -> bool {
    *system == System::Balanza || nginx.is_some_and(|nginx| nginx.numbers() >= NGINX_THAT_KEEPS)
}

/// Where it listens and how it asks. Time-outs are longer than those of the clients: a SYN that a full backlog drops is
/// sent again after 1, 3, 7, 15 and 31 seconds, and that is to be seen.
fn server(setup: &Setup<'_>) -> String {
    let connection = if setup.keep_alive { "\"\"" } else { "close" };
    format!(
        "
    server {{
        listen 127.0.0.1:{port} backlog=4096;

        location / {{
            proxy_pass http://servers;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection {connection};
            proxy_connect_timeout 75s;
            proxy_send_timeout 75s;
            proxy_read_timeout 75s;
            proxy_max_temp_file_size 0;
        }}
    }}
}}
",
        port = setup.port,
    )
}

/// Lines that are about NGINX's own files.
fn is_of_nginx(line: &str) -> bool {
    ["Debian's NGINX", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path"].iter().any(|word| line.contains(word))
}
