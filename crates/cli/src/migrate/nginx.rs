//! The NGINX of this machine: its program, its process and its configuration.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use balanza_config::{FileSystem, Options, Recorder, Severity, load};

use super::differences;
use super::moving::{self, Place, Running};
use super::report::{Problem, Report};
use crate::output;

/// What `nginx -V` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Build {
    /// "1.22.1".
    pub version: String,
    /// `--prefix=`.
    pub prefix: Option<PathBuf>,
    /// `--conf-path=`.
    pub file: Option<PathBuf>,
    /// `--pid-path=`.
    pub pid: Option<PathBuf>,
    /// Modules of others: `--add-module=` and `--add-dynamic-module=`.
    pub added: Vec<String>,
}

impl Build {
    /// Of a program; none if it cannot be executed.
    fn of(program: &Path) -> Option<Build> {
        // NGINX takes a variable of its own name for a list of sockets.
        let said = Command::new(program).arg("-V").env_remove("NGINX").stdin(Stdio::null()).output().ok()?;
        Some(Build::read(&String::from_utf8_lossy(&said.stderr)))
    }

    /// Reads its text.
    pub fn read(text: &str) -> Build {
        let mut build = Build::default();
        for line in text.lines() {
            if let Some((_, version)) = line.split_once("version: ") {
                build.version = version.trim().rsplit('/').next().unwrap_or_default().to_string();
            }
            let Some(arguments) = line.strip_prefix("configure arguments:") else { continue };
            for argument in arguments.split_whitespace() {
                let Some((name, value)) = argument.split_once('=') else { continue };
                let value = value.trim_matches('\'');
                match name {
                    "--prefix" => build.prefix = Some(value.into()),
                    "--conf-path" => build.file = Some(value.into()),
                    "--pid-path" => build.pid = Some(value.into()),
                    "--add-module" | "--add-dynamic-module" => {
                        build.added.push(value.rsplit('/').next().unwrap_or(value).to_string());
                    }
                    _ => {}
                }
            }
        }
        build
    }
}

/// The value of an option in NGINX's command line, as it stands in the title: blanks separate.
fn option(arguments: &str, letter: &str) -> Option<String> {
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        if word == letter {
            return words.next().map(str::to_string);
        }
        if let Some(value) = word.strip_prefix(letter).filter(|value| !value.is_empty()) {
            return Some(value.to_string());
        }
    }
    None
}

/// The directives of `-g` in NGINX's command line. Blanks in them look like those between options, but the last one ends
/// in ";", or NGINX would not have started.
fn globals(arguments: &str) -> Option<String> {
    let line = format!(" {arguments}");
    let (_, rest) = line.split_once(" -g")?;
    Some(rest[..=rest.rfind(';')?].trim_start().to_string())
}

/// The master process of an NGINX with this configuration; any if there is none given.
fn running(file: Option<&Path>) -> Option<Running> {
    // A process of another container has another root and another network.
    let space = |id: &str| fs::metadata(format!("/proc/{id}/ns/net")).ok().map(|it| it.ino());
    let own = space("self");
    let mut found: Vec<Running> = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.filter_map(Result::ok) {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let directory = fs::read_link(entry.path().join("cwd")).unwrap_or_else(|_| "/".into());
        if let Some(master) = Running::of(id, &line, directory).filter(|_| space(&id.to_string()) == own) {
            found.push(master);
        }
    }
    found.into_iter().find(|master| {
        let its = || {
            let given = option(&master.arguments, "-c").map(|its| master.directory.join(its));
            given.or_else(|| Build::of(&master.file())?.file)
        };
        file.is_none_or(|file| its().is_some_and(|its| its == *file))
    })
}

/// The page, as text or JSON.
///
/// # Errors
/// There is neither a file nor an NGINX.
pub fn page(file: Option<&Path>, program: Option<&Path>, as_json: bool) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let file = file.map(|file| here.join(file));
    let running = running(file.as_deref());
    let program =
        program.map(Path::to_path_buf).or_else(|| running.as_ref().map(|it| it.file()).filter(|it| it.exists()));
    let program = program.unwrap_or_else(|| {
        if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx".into() } else { "nginx".into() }
    });
    let build = Build::of(&program);
    let of_process =
        |letter| running.as_ref().and_then(|it| option(&it.arguments, letter).map(|value| it.directory.join(value)));
    let prefix = of_process("-p").or(build.as_ref().and_then(|build| build.prefix.clone()));
    let prefix = prefix.unwrap_or_else(|| "/usr/share/nginx".into());
    let known = build.as_ref().and_then(|build| build.file.clone());
    let Some(file) = file.or(of_process("-c")).or(known) else {
        anyhow::bail!("there is no NGINX here: name its configuration, or its program with --nginx");
    };

    let arguments = running.as_ref().map(|it| it.arguments.as_str()).unwrap_or_default();
    let mut options = Options::new(&prefix, &file).with_process();
    options.globals = globals(arguments);
    let recorder = Recorder::new(FileSystem);
    let (config, problems) = load(&recorder, &options);
    let (statements, files) = balanza_config::statements(&recorder.into_bundle(), &options);
    let flags = [("-p", option(arguments, "-p")), ("-g", options.globals)];
    let of_name = |name: &'static str| statements.iter().filter(move |words| words[0] == name);
    let first = |name| of_name(name).filter_map(|words| words.get(1));
    let pid = first("pid").next().map(|pid| prefix.join(pid));
    let place = Place {
        pid: pid.or(build.as_ref().and_then(|build| build.pid.clone())).unwrap_or_else(|| "/run/nginx.pid".into()),
        balanza: std::env::current_exe().unwrap_or_else(|_| "balanza".into()),
        foreground: first("daemon").any(|word| word == "off"),
        exists: running.as_ref().is_some_and(|it| it.file().exists()),
        options: flags.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])).collect(),
        program: program.clone(),
        file: file.clone(),
    };
    let shown =
        |severity| problems.iter().filter(move |it| it.severity == severity).map(Problem::of).collect::<Vec<_>>();
    let modules =
        first("load_module").map(|path| Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let report = Report {
        nginx: build.clone().filter(|build| !build.version.is_empty()).map(|build| (program, build.version)),
        process: running.as_ref().map(|it| it.id),
        file,
        files,
        counts: config.as_ref().map(|config| {
            let upstreams = config.http.upstreams.len() + config.stream.upstreams.len();
            [of_name("server").filter(|it| it.len() == 1).count(), upstreams, config.sockets().count()]
        }),
        modules: modules.chain(build.map(|build| build.added).unwrap_or_default()).collect(),
        errors: shown(Severity::Error),
        warnings: shown(Severity::Warning),
        differences: differences::of(&statements),
        plan: moving::plan(running.as_ref(), &place),
    };
    output::print(&if as_json { format!("{:#}\n", report.json()) } else { report.text(output::colour()) })?;
    Ok(if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_read() {
        let build = Build::read(
            "nginx version: nginx/1.22.1\nconfigure arguments: --with-cc-opt='-g -O2 -fPIC' --prefix=/usr/share/nginx \
             --conf-path=/etc/nginx/nginx.conf --pid-path=/run/nginx.pid --add-dynamic-module=/build/debian/modules/http-lua\n",
        );
        assert_eq!((build.version.as_str(), build.added), ("1.22.1", vec!["http-lua".to_string()]));
        assert_eq!(build.file.as_deref(), Some(Path::new("/etc/nginx/nginx.conf")));
        assert_eq!(build.pid.as_deref(), Some(Path::new("/run/nginx.pid")));
        assert_eq!(Build::read(""), Build::default());
    }

    #[test]
    fn options_of_a_title_are_found() {
        assert_eq!(option("-c /a.conf -g daemon on;", "-c").as_deref(), Some("/a.conf"));
        assert_eq!(option("-p/x -c/a.conf", "-p").as_deref(), Some("/x"));
        assert_eq!(option("", "-c"), None);
        assert_eq!(globals("-g daemon on; master_process on;").as_deref(), Some("daemon on; master_process on;"));
        assert_eq!(globals("-p /x-g -gdaemon on; -c /a.conf").as_deref(), Some("daemon on;"));
        assert_eq!((globals("-c /a-g.conf;"), globals("")), (None, None));
    }
}
