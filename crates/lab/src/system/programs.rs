//! Which programs this machine has: paths, versions, and what the account may do with them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Uid;

use crate::process::find;

/// The module's file.
const MODULE: &str = "ngx_http_balanza_module.so";

/// A program and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// What it calls its version, `1.22.1`; empty if it does not say.
    pub version: String,
}

impl Program {
    /// Asks the program at `path` with `-v` and takes what follows `before` for its version.
    pub fn ask(path: &Path, before: &str) -> Program {
        let mut command = Command::new(path);
        command.arg("-v");
        Program::said_by(path, command, before)
    }

    /// Caddy has another word for it. Debian's says the number alone, others `v2.6.2 h1:…`.
    fn ask_caddy(path: &Path) -> Program {
        let mut command = Command::new(path);
        // Without a directory that exists a library of Caddy's makes one in the user's home.
        command.arg("version").env("STEPPATH", env::temp_dir());
        let Program { path, version } = Program::said_by(path, command, "");
        Program { path, version: version.trim_start_matches('v').into() }
    }

    fn said_by(path: &Path, mut command: Command, before: &str) -> Program {
        let output = command.stdin(Stdio::null()).output();
        let said = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let version = said.split_once(before).and_then(|(_, rest)| rest.split_whitespace().next());
        Program { path: path.to_owned(), version: version.unwrap_or_default().into() }
    }

    /// The first three numbers of the version; what is missing is 0.
    pub fn numbers(&self) -> [u32; 3] {
        let mut numbers = self.version.split(|c: char| !c.is_ascii_digit()).map_while(|digits| digits.parse().ok());
        std::array::from_fn(|_| numbers.next().unwrap_or(0))
    }
}

/// What there is to measure on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// This program, or the one that `BALANZA_PROGRAM` names.
    pub balanza: Program,
    /// NGINX as installed.
    pub nginx: Option<Program>,
    /// HAProxy as installed.
    pub haproxy: Option<Program>,
    /// Caddy as installed.
    pub caddy: Option<Program>,
    /// The module for that NGINX.
    pub module: Option<PathBuf>,
    /// Whether they are started as root, and would give up their rights.
    pub root: bool,
    /// How many descriptors a process may have open.
    pub descriptors: u64,
}

impl Programs {
    /// Looks for all of them. Each is started for its version, NGINX once more
    /// if its module is not in the tree.
    pub fn find() -> Programs {
        let balanza = match env::var_os("BALANZA_PROGRAM") {
            Some(path) => Program::ask(Path::new(&path), "balanza/"),
            None => Program {
                path: env::current_exe().unwrap_or_else(|_| "balanza".into()),
                version: env!("CARGO_PKG_VERSION").into(),
            },
        };
        let nginx = find("nginx".as_ref()).map(|path| Program::ask(&path, "nginx/"));
        let haproxy = find("haproxy".as_ref()).map(|path| Program::ask(&path, "version "));
        let caddy = find("caddy".as_ref()).map(|path| Program::ask_caddy(&path));
        let module = match env::var_os("BALANZA_NGINX_MODULE") {
            // One that is named and not there is an error of NGINX's, not a reason to take another.
            Some(path) => Some(PathBuf::from(path)),
            None => nginx.as_ref().and_then(module),
        };
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard);
        Programs { balanza, nginx, haproxy, caddy, module, root: Uid::effective().is_root(), descriptors }
    }

    /// Name and version of each that is there, for a report.
    pub fn versions(&self) -> Vec<(String, String)> {
        let module = self.module.as_ref().map(|path| ("NGINX module", path.display().to_string()));
        let program = |name, program: &Option<Program>| program.as_ref().map(|p: &Program| (name, p.version.clone()));
        let all = [
            Some(("Balanza", self.balanza.version.clone())),
            program("NGINX", &self.nginx),
            module,
            program("HAProxy", &self.haproxy),
            program("Caddy", &self.caddy),
        ];
        all.into_iter().flatten().map(|(name, version)| (name.to_owned(), version)).collect()
    }

    /// How many clients a balancer serves at once: 8,192, or as many as have two descriptors each.
    pub(super) fn clients(&self) -> u64 {
        (self.descriptors.saturating_sub(512) / 2).clamp(64, 8192)
    }
}

/// The module for this NGINX: the tree's own, or the one that is installed.
fn module(nginx: &Program) -> Option<PathBuf> {
    let program = env::current_exe().ok();
    let above = program.iter().flat_map(|path| path.ancestors().skip(1));
    let built = above.map(|directory| directory.join("nginx-module").join(&nginx.version).join(MODULE));
    let is_file = |path: &PathBuf| path.is_file();
    built.into_iter().find(is_file).or_else(|| installed(nginx).filter(is_file))
}

/// The module among the modules of this NGINX, whether or not it is there.
fn installed(nginx: &Program) -> Option<PathBuf> {
    let output = Command::new(&nginx.path).arg("-V").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let directory = said.split_whitespace().find_map(|word| word.strip_prefix("--modules-path="))?;
    Some(Path::new(directory).join(MODULE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        let numbers = |version: &str| Program { path: "x".into(), version: version.into() }.numbers();
        assert_eq!(numbers("1.22.1"), [1, 22, 1]);
        assert_eq!(numbers("2.6.12-1+deb12u4"), [2, 6, 12]);
        assert_eq!(numbers("3.0"), [3, 0, 0]);
        assert_eq!(numbers(""), [0, 0, 0]);
        assert!(numbers("1.22.1") < [1, 29, 7]);
    }

    /// The lab's tests need both, and say so.
    #[test]
    fn nginx_and_haproxy_are_here() {
        let programs = Programs::find();
        let nginx = programs.nginx.as_ref().expect("NGINX is missing: apt-get install nginx");
        let haproxy = programs.haproxy.as_ref().expect("HAProxy is missing: apt-get install haproxy");
        assert!(nginx.numbers() > [1, 0, 0] && haproxy.numbers() > [1, 0, 0], "{programs:?}");
        assert!(installed(nginx).is_none_or(|path| path.ends_with(MODULE)));
        let names: Vec<String> = programs.versions().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"Balanza".into()) && names.contains(&"HAProxy".into()), "{names:?}");
    }

    #[test]
    fn clients_have_two_descriptors_each() {
        let clients = |descriptors| Programs { descriptors, ..Programs::find() }.clients();
        assert_eq!(clients(u64::MAX), 8192);
        assert_eq!(clients(4608), 2048);
        assert_eq!(clients(100), 64);
    }
}
