//! The files of a system.

use anyhow::{anyhow, bail};

use super::method::Method;
use super::{Programs, Setup, caddy, haproxy, nginx, supports};
use crate::plan::System;

/// What a system reads: nothing for those that the lab does not start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// File name and text.
    pub files: Vec<(String, String)>,
}

/// Writes the configuration for a task. Errors: the system cannot do it.
pub fn configuration(programs: &Programs, setup: &Setup<'_>) -> anyhow::Result<Configuration> {
    let Setup { system, algorithm, servers, .. } = setup;
    let cannot = |reason: String| anyhow!("{system} cannot run \"{}\": {reason}", algorithm.name);
    supports(programs, system, algorithm, servers.len()).map_err(cannot)?;
    if matches!(system, System::Direct | System::Url { .. }) {
        return Ok(Configuration::default());
    }
    if setup.port == 0 || setup.workers == 0 {
        bail!("{system} needs a port and a worker: there are port {} and {} workers", setup.port, setup.workers);
    }
    let method = Method::parse(&algorithm.balance).map_err(|error| cannot(error.to_string()))?;
    let (name, text) = match system {
        System::Haproxy => ("haproxy.cfg", haproxy::text(programs, setup, &method).map_err(cannot)?),
        System::Caddy => ("Caddyfile", caddy::text(setup, &method).map_err(cannot)?),
        _ => ("nginx.conf", nginx::text(programs, setup, &method)),
    };
    let head = format!("# {system}, {}. Written by balanza lab.\n", remark(&algorithm.name));
    Ok(Configuration { files: vec![(name.into(), head + &text)] })
}

/// A text as a remark at a line's end.
pub(super) fn remark(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::plan::Algorithm;
    use crate::system::tests::algorithm;
    use crate::system::{Backend, Program};

    /// The programs of this machine, with what depends on it fixed.
    fn programs() -> Programs {
        let program = |version: &str| Some(Program { path: "/x".into(), version: version.into() });
        let module = Some("/usr/lib/nginx/modules/ngx_http_balanza_module.so".into());
        let (nginx, haproxy, caddy) = (program("1.22.1"), program("2.6.12"), program("2.6.2"));
        Programs { nginx, haproxy, caddy, module, root: true, descriptors: 20_000, ..Programs::find() }
    }

    fn servers() -> Vec<Backend> {
        let server = |(i, weight): (u16, u32)| Backend {
            name: format!("server-{i}"),
            address: ([127, 0, 0, 1], 8000 + i).into(),
            weight,
        };
        [(1, 3), (2, 1), (3, 1)].map(server).into()
    }

    fn made(
        programs: &Programs,
        system: &System,
        algorithm: &Algorithm,
        keep_alive: bool,
    ) -> anyhow::Result<(String, String)> {
        made_of(&servers(), programs, system, algorithm, keep_alive)
    }

    fn equal_servers() -> Vec<Backend> {
        servers().into_iter().map(|server| Backend { weight: 1, ..server }).collect()
    }

    fn made_of(
        servers: &[Backend],
        programs: &Programs,
        system: &System,
        algorithm: &Algorithm,
        keep_alive: bool,
    ) -> anyhow::Result<(String, String)> {
        let setup = Setup { system, algorithm, servers, port: 8080, keep_alive, workers: 1 };
        Ok(configuration(programs, &setup)?.files.remove(0))
    }

    #[test]
    fn the_files() {
        let cases = [
            ("balanza", "round_robin", true),
            ("balanza", "peak_ewma", false),
            ("nginx", "round_robin", false),
            ("nginx", "hash key=$request_uri consistent", true),
            ("nginx+balanza", "two_choices choices=3", true),
            ("haproxy", "least_conn", false),
            ("haproxy", "bounded_hash key=$request_uri", true),
            ("caddy", "two_choices", true),
            ("caddy", "hash key=$http_x_user", false),
        ];
        for (system, balance, keep_alive) in cases {
            let algorithm = Algorithm { name: format!("{balance}\n3:1"), ..algorithm(balance) };
            let system: System = system.parse().unwrap();
            let (_, text) = match system {
                // It has no weights.
                System::Caddy => made_of(&equal_servers(), &programs(), &system, &algorithm, keep_alive).unwrap(),
                _ => made(&programs(), &system, &algorithm, keep_alive).unwrap(),
            };
            let form = balance.split(' ').next().unwrap();
            insta::assert_snapshot!(format!("{system}_{form}_{}", if keep_alive { "kept" } else { "closed" }), text);
        }
    }

    #[test]
    fn newer_nginx_is_told_not_to_keep_connections() {
        let nginx = Some(Program { path: "/x".into(), version: "1.31.4".into() });
        let newer = Programs { nginx, ..programs() };
        let of = |programs: &Programs| made(programs, &System::Nginx, &algorithm("rr"), false).unwrap().1;
        assert!(of(&newer).contains("keepalive 0;") && !of(&programs()).contains("keepalive 0;"));
    }

    #[test]
    fn what_cannot_be_is_not_written() {
        let error = |system, balance| made(&programs(), &system, &algorithm(balance), true).unwrap_err().to_string();
        assert_eq!(
            error(System::Nginx, "maglev"),
            "nginx cannot run \"a\": NGINX has no maglev; with Balanza's module it has: nginx+balanza"
        );
        let setup = Setup {
            system: &"mine=http://127.0.0.1:1".parse().unwrap(),
            algorithm: &algorithm("their own"),
            servers: &[],
            port: 0,
            keep_alive: true,
            workers: 1,
        };
        assert_eq!(configuration(&programs(), &setup).unwrap(), Configuration::default());
        let no_port = Setup { system: &System::Nginx, algorithm: &algorithm("rr"), servers: &servers(), ..setup };
        assert!(configuration(&programs(), &no_port).is_err());
    }

    /// Every form of every algorithm, read by the program that it is for.
    #[test]
    fn nginx_and_haproxy_accept_all_of_it() {
        let programs = Programs::find();
        let nginx = &programs.nginx.as_ref().expect("NGINX is missing: apt-get install nginx").path;
        let haproxy = &programs.haproxy.as_ref().expect("HAProxy is missing: apt-get install haproxy").path;
        let mut forms: Vec<&str> = balanza_balancing::registry::entries().iter().map(|entry| entry.name).collect();
        forms.extend([
            "hash key=$request_uri",
            "hash key=$request_uri consistent",
            "hash key=$arg_user",
            "hash key=$http_x_user",
            "hash key=$cookie_session",
            "hash key=$remote_addr",
            "hash key=\"a;{b",
            "hash key=$uri balance_factor=150",
            "two_choices choices=3",
        ]);
        let mut read_by = vec![(System::Nginx, nginx), (System::Haproxy, haproxy)];
        // tests/nginx-module has it built.
        match programs.module {
            Some(_) => read_by.push((System::NginxBalanza, nginx)),
            None => eprintln!("without nginx+balanza: the module is not built"),
        }
        let mut accepted = [0; 3];
        for (form, keep_alive) in forms.iter().flat_map(|form| [(form, true), (form, false)]) {
            let directory = tempfile::Builder::new().prefix("with space").tempdir().unwrap();
            std::fs::create_dir(directory.path().join("temp")).unwrap();
            for (at, (system, program)) in read_by.iter().enumerate() {
                let Ok((name, text)) = made(&programs, system, &algorithm(form), keep_alive) else { continue };
                let file = directory.path().join(name);
                std::fs::write(&file, &text).unwrap();
                let said = test(program, system, directory.path(), &file);
                assert_eq!(said, "", "{system}, {form}:\n{text}");
                accepted[at] += 1;
            }
        }
        let enough = accepted[0] >= 18 && accepted[1] >= 22 && (read_by.len() == 2 || accepted[2] >= 50);
        assert!(enough, "{accepted:?}");
    }

    /// Every form that Caddy has, read by Caddy where it is installed.
    #[test]
    fn caddy_accepts_what_is_written_for_it() {
        let Some(caddy) = Programs::find().caddy else { return eprintln!("without Caddy: apt-get install caddy") };
        let forms = [
            "round_robin",
            "least_conn",
            "random",
            "two_choices choices=3",
            "ip_hash",
            "hash key=$request_uri consistent",
            "hash key=$http_x_user",
            "hash key=$remote_addr",
        ];
        for (form, keep_alive) in forms.iter().flat_map(|form| [(form, true), (form, false)]) {
            let directory = tempfile::tempdir().unwrap();
            let made = made_of(&equal_servers(), &programs(), &System::Caddy, &algorithm(form), keep_alive);
            let file = directory.path().join("Caddyfile");
            std::fs::write(&file, made.unwrap().1).unwrap();
            let mut command = Command::new(&caddy.path);
            command.args(["validate", "--adapter", "caddyfile", "--config"]).arg(&file);
            command.current_dir(directory.path()).env("HOME", directory.path());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{form}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// What the program says against a file.
    fn test(program: &Path, system: &System, prefix: &Path, file: &Path) -> String {
        let mut command = Command::new(program);
        match system {
            System::Haproxy => command.args(["-c", "-q", "-f"]).arg(file),
            _ => command.args(["-t", "-q", "-e", "error.log", "-p"]).arg(prefix).arg("-c").arg(file),
        };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { said } else { format!("{}: {said}", output.status) }
    }
}
