//! Configurations of several files, recorded ones, large ones.

use nix::time::{ClockId, clock_gettime};

use super::*;

#[test]
fn files_are_included() {
    let mut files = bundle("events { } http { include types.conf; include sites/*.conf; }");
    files.add_file("/etc/balanza/types.conf", "types { include more.types; a/b c; }");
    files.add_file("/etc/balanza/more.types", "d/e f;");
    files.add_file("/etc/balanza/sites/1.conf", "server { listen 1; }");
    files.add_file("/etc/balanza/sites/2.conf", "server { listen 2; }");
    let sites = ["/etc/balanza/sites/1.conf", "/etc/balanza/sites/2.conf"].map(PathBuf::from).to_vec();
    files.add_glob("/etc/balanza/sites/*.conf", sites);
    let (config, problems) = load(&files, &options());
    let http = config.unwrap_or_else(|| panic!("{problems:?}")).http;
    assert_eq!(http.listens.len(), 2);
    assert_eq!(http.listens[0].groups[0].default_server.root.settings.types.len(), 2);
    files.add_file("/etc/balanza/sites/2.conf", "include sites/1.conf; include n.conf;");
    let (config, problems) = load(&files, &options());
    assert!(config.is_none());
    let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        text.contains(&"balanza: [emerg] files are included too deeply in /etc/balanza/sites/2.conf:1".to_string()),
        "{text:?}"
    );
}

#[test]
fn a_recording_means_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("n.conf"), "events { } http { types { a/b c; } include *.site; }").unwrap();
    std::fs::write(path("a.site"), "server { listen 1; location / { proxy_pass http://localhost:9; } }").unwrap();
    std::fs::write(path("b.site"), "server { listen 2; }").unwrap();
    let options = Options::new(directory.path(), path("n.conf"));
    let recorder = Recorder::new(balanza_config::FileSystem);
    let (first, problems) = load(&recorder, &options);
    let first = first.unwrap_or_else(|| panic!("{problems:?}"));
    let bundle = recorder.into_bundle();
    assert_eq!(bundle.files().count(), 3);
    drop(directory);
    let sent = serde_json::to_string(&(bundle, options)).unwrap();
    let (bundle, options): (Bundle, Options) = serde_json::from_str(&sent).unwrap();
    let (second, problems) = load(&bundle, &options);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(format!("{first:?}") == format!("{:?}", second.unwrap()));
}

#[test]
fn ten_thousand_servers_load_quickly() {
    let servers: String = (0..10_000).map(|i| format!("server 10.{}.{}.1:80;", i / 256, i % 256)).collect();
    // Processor time, so that other work on the machine does not count.
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let start = now();
    let http = http(&format!("upstream u {{ {servers} }} server {{ listen 1-2000; }}"));
    assert_eq!((http.upstreams[0].servers.len(), http.listens.len()), (10_000, 2000));
    assert!(now() - start < Duration::from_secs(5), "{:?}", now() - start);
}

#[test]
fn paths_are_shown_without_dots() {
    let mut files = Bundle::default();
    files.add_file("/etc/./x/n.conf", "unread");
    files.add_file("/etc/x/n.conf", "include ./sites/./a.conf; pid ./run/./a.pid; error_log logs//./e.log; events { }");
    files.add_file("/etc/x/sites/a.conf", "bogus;");
    let (_, problems) = load(&files, &Options::new("/etc/./x/", "./n.conf"));
    let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text, ["balanza: [emerg] unknown directive \"bogus\" in /etc/x/sites/a.conf:1"]);
    files.add_file("/etc/x/sites/a.conf", "");
    let core = load(&files, &Options::new("/etc/./x/", "./n.conf")).0.unwrap().core;
    assert_eq!(core.pid.unwrap().as_os_str(), "/etc/x/run/a.pid");
    let LogTarget::File(path) = &core.error_log[0].target else { panic!("{:?}", core.error_log) };
    assert_eq!(path.as_os_str(), "/etc/x/logs/e.log");
}
