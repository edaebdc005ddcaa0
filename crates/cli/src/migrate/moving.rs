//! The commands that go over from a running NGINX, and back.
//!
//! NGINX passes its listening sockets to a new binary (USR2) in an environment variable, and Balanza takes them by the
//! same variable. So a launcher stands in the place of NGINX's program for a second, and no connection is refused.

use std::path::PathBuf;

use crate::output::shell;

/// A master process of NGINX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub id: u32,
    /// The program as its command line names it.
    pub program: String,
    /// The rest of its command line.
    pub arguments: String,
    /// Its working directory.
    pub directory: PathBuf,
}

impl Running {
    /// Reads /proc/PID/cmdline, whose text NGINX has replaced by a title; none if it is no master process.
    pub fn of(id: u32, command_line: &[u8], directory: PathBuf) -> Option<Running> {
        let text = String::from_utf8_lossy(command_line).replace('\0', " ");
        let line = text.strip_prefix("nginx: master process ")?.trim();
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        Some(Running { id, program: program.into(), arguments: arguments.trim().into(), directory })
    }

    /// The file that NGINX executes for USR2.
    pub fn file(&self) -> PathBuf {
        self.directory.join(&self.program)
    }
}

/// What the commands need to know.
#[derive(Debug, Clone)]
pub struct Place {
    /// NGINX's configuration.
    pub file: PathBuf,
    /// NGINX's pid file.
    pub pid: PathBuf,
    /// This program.
    pub balanza: PathBuf,
    /// NGINX's program.
    pub program: PathBuf,
    /// `-p` and `-g` of NGINX's command line.
    pub options: Vec<[String; 2]>,
    /// `daemon off;` is in the configuration or on the command line.
    pub foreground: bool,
    /// There is a program where NGINX looks for it.
    pub exists: bool,
}

/// A step: what it does, and the commands of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub what: &'static str,
    /// For a shell of NGINX's account.
    pub command: String,
}

/// The ways over and back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Why requests are lost, if they are.
    pub gap: Option<&'static str>,
    /// Over.
    pub over: Vec<Step>,
    /// Back, while NGINX still waits.
    pub undo: Vec<Step>,
    /// The end: NGINX is not needed any more.
    pub finish: Vec<Step>,
    /// Back, when NGINX has ended.
    pub back: Vec<Step>,
}

/// The plan for this NGINX; without one that runs, both are stopped and started.
pub fn plan(running: Option<&Running>, place: &Place) -> Plan {
    let step = |what, command: String| Step { what, command };
    let (pid, balanza, nginx) = (shell(&place.pid), shell(&place.balanza), shell(&place.program));
    let mut conf = String::new();
    for [name, value] in &place.options {
        conf.push_str(&format!("{name} {} ", shell(value.as_ref())));
    }
    conf.push_str(&format!("-c {}", shell(&place.file)));
    let test = step("test the configuration", format!("{balanza} -t {conf}"));
    let gap = match running {
        None => Some("no NGINX runs here with this configuration"),
        Some(_) if place.foreground => {
            Some("with \"daemon off\" NGINX does not pass its sockets on; in containers start Balanza in a new one")
        }
        Some(_) => None,
    };
    let Some(running) = running.filter(|_| gap.is_none()) else {
        // Balanza tries to bind for two seconds, so that the gap is the end of NGINX's listening and half a second.
        let over = step("stop NGINX, and start Balanza", format!("{nginx} {conf} -s quit; {balanza} {conf}"));
        let back = step("stop Balanza, and start NGINX", format!("{balanza} {conf} -s quit; {nginx} {conf}"));
        return Plan { gap, over: vec![test, over], back: vec![back], ..Plan::default() };
    };
    let file = running.file();
    let (program, kept) = (shell(&file), shell(&file.with_extension("nginx-program")));
    let conf = shell(&place.file);
    let launcher = shell(format!("exec -a {program} {balanza} -c {conf} \"$@\"").as_ref());
    let make = format!("printf '%s\\n' '#!/bin/bash' {launcher} > {program} && chmod 755 {program}");
    let put = if place.exists { format!("mv {program} {kept} && {make}") } else { make };
    let take = if place.exists { format!("mv {kept} {program}") } else { format!("rm {program}") };
    let both = format!(
        "kill -USR2 $(cat {pid}); for i in $(seq 100); do [ -s {pid}.oldbin ] && [ -s {pid} ] && break; sleep 0.1; done; \
         [ -s {pid}.oldbin ]"
    );
    let quit_old = |what| step(what, format!("kill -QUIT $(cat {pid}.oldbin)"));
    // From Linux 5.14 on; without it a connection is lost that waits in a socket at the moment it is closed.
    let migrate = "/proc/sys/net/ipv4/tcp_migrate_req";
    let migrate =
        format!("[ ! -e {migrate} ] || echo 1 > {migrate} || echo 'it cannot be set: such a connection may be reset'");
    Plan {
        gap: None,
        over: vec![
            test,
            step("connections that wait in a socket that is closed go to another one", migrate),
            step("let NGINX start Balanza as its new binary", put),
            step("start it on NGINX's sockets: both serve", both.clone()),
            step("NGINX's program is itself again", take),
            step(
                "NGINX's workers finish their requests: Balanza serves alone",
                format!("kill -WINCH $(cat {pid}.oldbin)"),
            ),
        ],
        undo: vec![
            step("NGINX starts workers again", format!("kill -HUP $(cat {pid}.oldbin)")),
            step("Balanza finishes its requests and ends", format!("kill -QUIT $(cat {pid})")),
        ],
        finish: vec![quit_old("NGINX ends")],
        back: vec![
            step("start NGINX on Balanza's sockets: both serve", both),
            quit_old("Balanza finishes its requests and ends"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_master_process_is_known_by_its_title() {
        let running =
            Running::of(7, b"nginx: master process /usr/sbin/nginx -g daemon on; master_process on;\0", "/".into());
        let running = running.unwrap();
        assert_eq!(
            (running.program.as_str(), running.arguments.as_str()),
            ("/usr/sbin/nginx", "-g daemon on; master_process on;")
        );
        assert_eq!(Running { program: "nginx".into(), ..running }.file(), Path::new("/nginx"));
        assert_eq!(Running::of(7, b"nginx: worker process\0", "/".into()), None);
        assert_eq!(Running::of(7, b"vi nginx.conf\0", "/".into()), None);
    }

    #[test]
    fn a_plan_has_commands_for_both_ways() {
        let running = Running::of(7, b"nginx: master process /usr/sbin/nginx\0", "/".into()).unwrap();
        let place = Place {
            file: "/etc/nginx/nginx.conf".into(),
            pid: "/run/nginx.pid".into(),
            balanza: "/usr/bin/balanza".into(),
            program: "/usr/sbin/nginx".into(),
            options: vec![["-g".into(), "pid /run/it's;".into()]],
            foreground: false,
            exists: true,
        };
        let plan_of = |place: &Place| plan(Some(&running), place);
        let whole = plan_of(&place);
        assert_eq!(whole.gap, None);
        let options = r"-g 'pid /run/it'\''s;' -c /etc/nginx/nginx.conf";
        assert_eq!(whole.over[0].command, format!("/usr/bin/balanza -t {options}"));
        assert!(
            whole.over[2].command.contains("exec -a /usr/sbin/nginx /usr/bin/balanza -c /etc/nginx/nginx.conf \"$@\"")
        );
        assert!(whole.over[4].command.ends_with("/usr/sbin/nginx"));
        assert_eq!(whole.undo[0].command, "kill -HUP $(cat /run/nginx.pid.oldbin)");
        assert_eq!(whole.back.len(), 2);
        let foreground = plan_of(&Place { foreground: true, ..place.clone() });
        let stopped = format!("/usr/sbin/nginx {options} -s quit; /usr/bin/balanza {options}");
        assert_eq!((foreground.gap.is_some(), foreground.over[1].command.as_str()), (true, stopped.as_str()));
        assert!(plan(None, &place).gap.is_some());
        let odd = plan_of(&Place { pid: "/a b/it's".into(), ..place.clone() });
        assert_eq!(odd.undo[1].command, r"kill -QUIT $(cat '/a b/it'\''s')");
    }
}
