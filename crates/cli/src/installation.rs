//! Where things are unless the command line says otherwise.

use std::path::{Path, PathBuf};

use balanza_config::Options;

use crate::flags::Flags;

/// The prefix of root's Balanza: that of Debian's NGINX, so that its configurations find the same documents.
const SYSTEM_PREFIX: &str = "/usr/share/nginx";
/// The files in /etc of which the first that exists is read without `-p` and `-c` when there is no `conf/nginx.conf`: that
/// of Balanza's package, and that of Debian's NGINX and nginx.org's.
const SYSTEM_FILES: [&str; 2] = ["balanza/nginx.conf", "nginx/nginx.conf"];
/// Where a system keeps logs and pid files: Balanza's, and those of Debian's NGINX.
const SYSTEM_LOGS: [&str; 2] = ["/var/log/balanza", "/var/log/nginx"];
const SYSTEM_PID: [&str; 2] = ["/run/balanza.pid", "/run/nginx.pid"];

/// The paths in effect.
#[derive(Debug, PartialEq, Eq)]
pub struct Installation {
    /// What relative paths are relative to.
    pub prefix: PathBuf,
    /// The configuration.
    pub file: PathBuf,
    /// The error log that is used until the configuration names one; "stderr" is standard error.
    pub error_log: PathBuf,
    /// The access log unless the configuration names one.
    pub access_log: PathBuf,
    /// The pid file unless the configuration names one.
    pub pid: PathBuf,
}

/// What the paths depend on.
pub struct Surroundings {
    /// Whether this is root.
    pub privileged: bool,
    /// Where a user's own files belong.
    pub state: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// Where a system keeps its configuration.
    pub etc: PathBuf,
    /// Whether the program was started by NGINX's name: it stands in NGINX's place and has its paths.
    pub nginx: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process(privileged: bool) -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .unwrap_or_else(std::env::temp_dir);
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let nginx = balanza_supervisor::is_nginx(&balanza_supervisor::arguments());
        Self { privileged, state, directory, etc: "/etc".into(), nginx }
    }
}

impl Surroundings {
    fn system_file(&self) -> PathBuf {
        let [own, other] = SYSTEM_FILES.map(|name| self.etc.join(name));
        let is_own = own.exists() && !(self.nginx && other.exists());
        if is_own { own } else { other }
    }
}

impl Installation {
    /// The paths that these flags mean.
    pub fn new(flags: &Flags, surroundings: &Surroundings) -> Self {
        // What messages show has no "/./" in it.
        let plain = |path: PathBuf| -> PathBuf { path.components().collect() };
        let own = flags.prefix.as_ref().map(|prefix| plain(surroundings.directory.join(prefix)));
        let system = surroundings.privileged && own.is_none();
        let prefix = own.unwrap_or_else(|| {
            if surroundings.privileged { SYSTEM_PREFIX.into() } else { surroundings.state.join("balanza") }
        });
        let file = match &flags.file {
            // As in NGINX, a relative name is one in the prefix if there is a prefix on the command line.
            Some(file) if flags.prefix.is_some() => prefix.join(file),
            Some(file) => surroundings.directory.join(file),
            // A prefix that lacks its file is a mistake to be told of, not a reason to serve something else.
            None => {
                let file = prefix.join("conf/nginx.conf");
                if flags.prefix.is_some() || file.exists() { file } else { surroundings.system_file() }
            }
        };
        let file = plain(file);
        let logs =
            if system { PathBuf::from(SYSTEM_LOGS[usize::from(surroundings.nginx)]) } else { prefix.join("logs") };
        let error_log = match &flags.error_log {
            Some(file) if file == Path::new("stderr") => file.clone(),
            Some(file) => plain(prefix.join(file)),
            None => logs.join("error.log"),
        };
        let pid = if system { SYSTEM_PID[usize::from(surroundings.nginx)].into() } else { logs.join("balanza.pid") };
        Self { prefix, file, error_log, access_log: logs.join("access.log"), pid }
    }

    /// Makes the directory of the default logs, which no package has made for a user's own prefix. If it cannot be
    /// made, opening a file there is the error.
    pub fn make_log_directory(&self) {
        if let Some(directory) = self.access_log.parent() {
            drop(std::fs::create_dir_all(directory));
        }
    }

    /// What a configuration depends on.
    pub fn options(&self, flags: &Flags) -> Options {
        let mut options = Options::new(&self.prefix, &self.file).with_process();
        options.globals.clone_from(&flags.globals);
        options.error_log.clone_from(&self.error_log);
        options.access_log.clone_from(&self.access_log);
        options.pid.clone_from(&self.pid);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(line: &[&str], privileged: bool) -> Installation {
        let arguments: Vec<_> = line.iter().map(std::ffi::OsString::from).collect();
        let surroundings = Surroundings {
            privileged,
            state: "/home/me/.local/state".into(),
            directory: "/here".into(),
            etc: "/nonexistent".into(),
            nginx: false,
        };
        Installation::new(&Flags::parse(&arguments).unwrap(), &surroundings)
    }

    #[test]
    fn root_has_the_paths_of_a_system() {
        let paths = installation(&[], true);
        assert_eq!(paths.file, Path::new("/nonexistent/nginx/nginx.conf"));
        assert_eq!(paths.prefix, Path::new("/usr/share/nginx"));
        assert_eq!(paths.pid, Path::new("/run/balanza.pid"));
        assert_eq!(paths.error_log, Path::new("/var/log/balanza/error.log"));
    }

    #[test]
    fn others_have_their_own() {
        let paths = installation(&["-c", "my.conf"], false);
        assert_eq!(paths.file, Path::new("/here/my.conf"));
        assert_eq!(paths.prefix, Path::new("/home/me/.local/state/balanza"));
        assert_eq!(paths.pid, Path::new("/home/me/.local/state/balanza/logs/balanza.pid"));
    }

    #[test]
    fn a_prefix_holds_everything() {
        let paths = installation(&["-p", "x", "-c", "my.conf", "-e", "e.log"], true);
        assert_eq!(paths.prefix, Path::new("/here/x"));
        assert_eq!(paths.file, Path::new("/here/x/my.conf"));
        assert_eq!(paths.error_log, Path::new("/here/x/e.log"));
        assert_eq!(paths.access_log, Path::new("/here/x/logs/access.log"));
        assert_eq!(installation(&["-p", "/y", "-e", "stderr"], false).error_log, Path::new("stderr"));
        for privileged in [true, false] {
            // Whether the file is there or not: the system's is none of this prefix.
            assert_eq!(installation(&["-p", "/nowhere"], privileged).file, Path::new("/nowhere/conf/nginx.conf"));
        }
    }

    #[test]
    fn the_users_own_file_goes_before_that_of_the_package_and_that_before_that_of_nginx() {
        let directory = tempfile::tempdir().unwrap();
        let (state, etc) = (directory.path().join("state"), directory.path().join("etc"));
        let surroundings = Surroundings { privileged: false, state, directory: "/here".into(), etc, nginx: false };
        let file = || Installation::new(&Flags::default(), &surroundings).file;
        assert_eq!(file(), surroundings.etc.join("nginx/nginx.conf"));
        for own in [surroundings.etc.join("balanza/nginx.conf"), surroundings.state.join("balanza/conf/nginx.conf")] {
            std::fs::create_dir_all(own.parent().unwrap()).unwrap();
            std::fs::write(&own, "").unwrap();
            assert_eq!(file(), own);
        }
    }

    #[test]
    fn by_the_name_of_nginx_it_has_the_paths_of_nginx() {
        let directory = tempfile::tempdir().unwrap();
        let etc = directory.path().to_path_buf();
        let surroundings = Surroundings {
            privileged: true,
            state: "/".into(),
            directory: "/here".into(),
            etc: etc.clone(),
            nginx: true,
        };
        let paths = || Installation::new(&Flags::default(), &surroundings);
        assert_eq!(paths().pid, Path::new("/run/nginx.pid"));
        assert_eq!(paths().error_log, Path::new("/var/log/nginx/error.log"));
        for name in ["balanza", "nginx"] {
            std::fs::create_dir(etc.join(name)).unwrap();
            std::fs::write(etc.join(name).join("nginx.conf"), "").unwrap();
            assert_eq!(paths().file, etc.join(name).join("nginx.conf"));
        }
    }

    #[test]
    fn paths_are_shown_without_dots() {
        let paths = installation(&["-p", "./x/./", "-c", "./my.conf", "-e", "./e.log"], false);
        assert_eq!(paths.prefix.as_os_str(), "/here/x");
        assert_eq!(paths.file.as_os_str(), "/here/x/my.conf");
        assert_eq!(paths.error_log.as_os_str(), "/here/x/e.log");
        assert_eq!(installation(&["-c", "./a/../my.conf"], true).file.as_os_str(), "/here/a/../my.conf");
    }
}
