//! The main context.

use super::*;

#[test]
fn core_defaults() {
    let core = config("events { }").core;
    assert_eq!(core.user, Account { user: "nobody".into(), group: None });
    assert_eq!((core.worker_processes, core.worker_connections), (Some(1), 512));
    assert_eq!(core.worker_memory, WorkerMemory::Auto);
    assert_eq!((core.worker_rlimit_nofile, core.worker_shutdown_timeout), (None, None));
    assert_eq!(core.worker_drain_timeout, Duration::from_secs(3));
    assert_eq!(core.worker_watchdog, WorkerWatchdog { limit: Some(Duration::from_secs(5)), restart: false });
    assert_eq!((core.daemon, core.master_process), (true, true));
    assert_eq!(core.pid, Some("/srv/logs/nginx.pid".into()));
    let log = ErrorLog { target: LogTarget::File("/srv/logs/error.log".into()), level: Level::Error };
    assert_eq!(core.error_log, [log]);
}

#[test]
fn core_settings() {
    let core = config(
        "user www www-data; worker_processes auto; worker_rlimit_nofile 4096; worker_shutdown_timeout 1m30s; pid off;
         error_log stderr notice; error_log /var/log/e.log; daemon off; master_process off;
         events { worker_connections 2048; }",
    )
    .core;
    assert_eq!(core.user, Account { user: "www".into(), group: Some("www-data".into()) });
    assert_eq!((core.worker_processes, core.worker_connections), (None, 2048));
    assert_eq!(core.worker_rlimit_nofile, Some(4096));
    assert_eq!(core.worker_shutdown_timeout, Some(Duration::from_secs(90)));
    assert_eq!((core.daemon, core.master_process, core.pid), (false, false, None));
    assert_eq!(core.error_log[0], ErrorLog { target: LogTarget::Stderr, level: Level::Notice });
    assert_eq!(core.error_log[1].target, LogTarget::File("/var/log/e.log".into()));
}

#[test]
fn watchdog_and_drain() {
    let watchdog = |text: &str| config(&format!("{text} events {{ }}")).core.worker_watchdog;
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(watchdog("worker_watchdog 30s restart;"), WorkerWatchdog { limit: seconds(30), restart: true });
    assert_eq!(watchdog("worker_watchdog 2s;"), WorkerWatchdog { limit: seconds(2), restart: false });
    assert_eq!(watchdog("worker_watchdog off;"), WorkerWatchdog { limit: None, restart: false });
    assert_eq!(config("worker_drain_timeout 0; events { }").core.worker_drain_timeout, Duration::ZERO);
    for wrong in ["1s", "restart", "5s again", "off restart", "-1"] {
        let (config, problems) = load(&bundle(&format!("worker_watchdog {wrong}; events {{ }}")), &options());
        assert!(config.is_none() && problems.len() == 1, "{wrong}: {problems:?}");
    }
}

#[test]
fn globals_of_the_command_line() {
    let mut options = options();
    options.globals = Some("daemon off; worker_processes 3;".into());
    let (config, _) = load(&bundle("events { }"), &options);
    let core = config.unwrap().core;
    assert_eq!((core.daemon, core.worker_processes), (false, Some(3)));
    let (config, problems) = load(&bundle("daemon on; events { }"), &options);
    assert!(config.is_none());
    assert_eq!(problems[0].to_string(), "balanza: [emerg] \"daemon\" directive is duplicate in /etc/balanza/n.conf:1");
    options.globals = Some("daemon off".into());
    let (_, problems) = load(&bundle("events { }"), &options);
    assert_eq!(
        problems[0].to_string(),
        "balanza: [emerg] unexpected end of parameter, expecting \";\" in command line:1"
    );
}

#[test]
fn worker_memory() {
    let of = |value: &str| config(&format!("worker_memory {value}; events {{ }}")).core.worker_memory;
    assert_eq!((of("auto"), of("off")), (WorkerMemory::Auto, WorkerMemory::Off));
    assert_eq!((of("512m"), of("2g")), (WorkerMemory::Bytes(512 << 20), WorkerMemory::Bytes(2 << 30)));
}
