//! What a system can do.

use balanza_balancing::registry::{Host, Share};

use super::method::Method;
use super::{Program, Programs, caddy, haproxy};
use crate::plan::{Algorithm, Farm, Setting, System};

/// The first NGINX without a subscription that has `least_time`.
const NGINX_WITH_LEAST_TIME: [u32; 3] = [1, 31, 0];

/// Whether a system can do this with so many servers. Errors: the reason why not, in words.
pub fn supports(programs: &Programs, system: &System, algorithm: &Algorithm, servers: usize) -> Result<(), String> {
    if let System::Url { .. } = system {
        // What it does there is its owner's to know: the algorithm is a label.
        return Ok(());
    }
    let method = Method::parse(&algorithm.balance).map_err(|error| error.to_string())?;
    if servers == 0 {
        return Err("there are no servers".into());
    }
    if algorithm.weights.contains(&0) {
        return Err("weights are 1 or more".into());
    }
    if method.spec.entry().share == Share::Order && *system != System::Direct {
        let name = method.name();
        return Err(format!("{name} without limits never leaves the first server, and plans have no limits"));
    }
    match system {
        System::Balanza => Ok(()),
        System::Nginx => nginx(program(&programs.nginx, "NGINX", "nginx")?, &method),
        System::NginxBalanza => {
            program(&programs.nginx, "NGINX", "nginx")?;
            module(programs, &method)
        }
        System::Haproxy => {
            let haproxy = program(&programs.haproxy, "HAProxy", "haproxy")?;
            haproxy::supports(haproxy, &method, &algorithm.weights)
        }
        System::Caddy => {
            program(&programs.caddy, "Caddy", "caddy")?;
            caddy::supports(&method, &algorithm.weights)
        }
        System::Direct if algorithm.control || algorithm.servers.len() == 1 || servers == 1 => Ok(()),
        System::Direct => Err("without a balancer there is one server: the algorithm has several".into()),
        System::Url { .. } => Ok(()),
    }
}

fn program<'p>(program: &'p Option<Program>, name: &str, package: &str) -> Result<&'p Program, String> {
    program.as_ref().ok_or_else(|| format!("{name} is not installed: apt-get install {package}"))
}

/// Whether the servers of a farm give what an algorithm goes by. Errors: the reason why not, in words.
pub fn reports(system: &System, algorithm: &Algorithm, farm: &Farm) -> Result<(), String> {
    let method = Method::parse(&algorithm.balance).map_err(|error| error.to_string())?;
    if *system != System::Balanza || method.spec.entry().host != Host::Reports {
        return Ok(());
    }
    match farm.servers.iter().find(|server| server.target.get("report-load") != Some(&Setting::Flag(true))) {
        Some(server) => Err(format!(
            "{} goes by loads that servers report: {} needs target = {{ report-load = true, … }}",
            method.name(),
            server.name
        )),
        None => Ok(()),
    }
}

fn nginx(nginx: &Program, method: &Method) -> Result<(), String> {
    let name = method.name();
    let directive = method.of_nginx().ok_or_else(|| match name {
        "hash" => "NGINX's hash has no balance_factor".to_owned(),
        "two_choices" => "NGINX's random draws two servers, not more".to_owned(),
        _ if matches!(method.spec.entry().host, Host::Any | Host::Idleness) => {
            format!("NGINX has no {name}; with Balanza's module it has: nginx+balanza")
        }
        _ => format!("NGINX has no {name}"),
    })?;
    let by_time = directive.contains("least_time");
    if by_time && nginx.numbers() < NGINX_WITH_LEAST_TIME {
        return Err(format!("NGINX {} has no least_time, which came with 1.31", nginx.version));
    }
    Ok(())
}

fn module(programs: &Programs, method: &Method) -> Result<(), String> {
    let name = method.name();
    match method.spec.entry().host {
        Host::Any | Host::Idleness => {}
        Host::Reports => return Err(format!("{name} goes by loads that servers report, which NGINX does not hear")),
        Host::Probes => return Err(format!("{name} probes the servers, which NGINX does not do")),
        Host::Program => return Err(format!("{name} asks a program, which NGINX does not do")),
    }
    if programs.module.is_none() {
        return Err("the module for NGINX is not built: make nginx-module".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::algorithm;

    fn programs() -> Programs {
        let program = |version: &str| Program { path: "/x".into(), version: version.into() };
        Programs {
            balanza: program("0.1.0"),
            nginx: Some(program("1.22.1")),
            haproxy: Some(program("2.6.12")),
            caddy: Some(program("2.6.2")),
            module: Some("/x.so".into()),
            root: false,
            descriptors: 20_000,
        }
    }

    /// Every algorithm in every system: the table is what users are told.
    #[test]
    fn all_algorithms_in_all_systems() {
        let mut forms: Vec<String> = balanza_balancing::registry::entries().iter().map(|e| e.name.into()).collect();
        forms.retain(|form| form != "hash");
        let more = [
            "hash key=$request_uri",
            "hash key=$request_uri consistent",
            "hash key=$uri balance_factor=150",
            "hash key=$arg_user",
            "hash key=$http_x_user",
            "hash key=$cookie_session",
            "hash key=$uri$is_args",
            "two_choices choices=3",
            "two_choices by=header",
            "priority by=least_conn",
            "external program=/bin/cat",
            "rr",
            "lest_conn",
        ];
        forms.extend(more.map(str::to_owned));
        let mut text = String::new();
        for form in &forms {
            text += &format!("{form}\n");
            for (name, system) in &System::NAMED[..5] {
                match supports(&programs(), system, &algorithm(form), 3) {
                    Ok(()) => text += &format!("    {name}: yes\n"),
                    Err(reason) => text += &format!("    {name}: {reason}\n"),
                }
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_is_missing_or_too_much() {
        let url = "mine=http://127.0.0.1:8080".parse().unwrap();
        let none = Programs { nginx: None, haproxy: None, caddy: None, module: None, ..programs() };
        let new = Programs { nginx: Some(Program { path: "/x".into(), version: "1.31.4".into() }), ..programs() };
        let of = |programs: &Programs, system: &System, balance: &str, weights: &[u32]| {
            let algorithm = Algorithm { weights: weights.to_vec(), ..algorithm(balance) };
            supports(programs, system, &algorithm, 3).err().unwrap_or_default()
        };
        assert_eq!(of(&none, &System::Nginx, "rr", &[]), "NGINX is not installed: apt-get install nginx");
        assert_eq!(of(&none, &System::Haproxy, "rr", &[]), "HAProxy is not installed: apt-get install haproxy");
        assert_eq!(of(&none, &System::Caddy, "rr", &[]), "Caddy is not installed: apt-get install caddy");
        assert_eq!(of(&programs(), &System::Caddy, "rr", &[1, 1, 1]), "");
        assert!(of(&programs(), &System::Caddy, "rr", &[3, 1, 1]).contains("no weights"));
        let without_module = Programs { module: None, ..programs() };
        assert_eq!(
            of(&without_module, &System::NginxBalanza, "rr", &[]),
            "the module for NGINX is not built: make nginx-module"
        );
        assert_eq!(of(&new, &System::Nginx, "least_time", &[]), "");
        assert_eq!(of(&none, &url, "whatever it does", &[]), "");
        assert_eq!(of(&programs(), &System::Balanza, "rr", &[1, 0, 1]), "weights are 1 or more");
        assert_eq!(of(&programs(), &System::Haproxy, "rr", &[1, 257, 1]), "HAProxy's weights go up to 256");
    }

    #[test]
    fn directly_there_is_one_server() {
        let direct =
            |algorithm: &Algorithm, servers| supports(&programs(), &System::Direct, algorithm, servers).is_ok();
        assert!(!direct(&algorithm("round_robin"), 3));
        assert!(direct(&algorithm("round_robin"), 1));
        assert!(direct(&Algorithm { control: true, ..algorithm("round_robin") }, 3));
        assert!(direct(&Algorithm { servers: vec!["s1".into()], ..algorithm("round_robin") }, 3));
    }

    #[test]
    fn loads_go_with_servers_that_report_them() {
        let farm = |options: &str| {
            let servers = toml::from_str(&format!("name = \"f\"\n[[servers]]\nname = \"s\"\ntarget = {{ {options} }}"));
            servers.expect("a farm")
        };
        let reports = |balance: &str, farm: &Farm| reports(&System::Balanza, &algorithm(balance), farm);
        let reason = reports("least_load", &farm("report-load = false")).unwrap_err();
        assert!(reason.contains("s needs target = { report-load = true"), "{reason}");
        assert_eq!(reports("least_load", &farm("report-load = true")), Ok(()));
        assert_eq!(reports("least_conn", &farm("concurrency = 1")), Ok(()));
    }
}
