//! The main context and `events`.

use crate::block::put;
use crate::directives::Directive;
use crate::directives::row::{ANYWHERE, EVENTS, FLAG, MAIN, NONE, ONE, at_least, between, block, core, no_effect};
use crate::tuning;

pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("balanza", OWN_MAIN),
    ("ngx_core_module", CORE),
    ("ngx_event_core_module", EVENT_CORE),
    ("ngx_epoll_module", EPOLL),
    ("ngx_google_perftools_module", GOOGLE_PERFTOOLS),
    ("ngx_openssl_module", OPENSSL),
    ("ngx_quic_bpf_module", QUIC_BPF),
    ("ngx_regex_module", REGEX),
    ("ngx_thread_pool_module", THREAD_POOL),
];

const OWN_MAIN: &[Directive] = &[
    core("worker_drain_timeout", MAIN, ONE, "3s", |b, c, s| put(&mut c.core.worker_drain_timeout, b.msec(s))),
    core("worker_memory", MAIN, ONE, "auto", |b, c, s| put(&mut c.core.worker_memory, b.worker_memory(s))),
    core("worker_watchdog", MAIN, between(1, 2), "5s", |b, c, s| {
        put(&mut c.core.worker_watchdog, b.worker_watchdog(s))
    }),
];

const CORE: &[Directive] = &[
    core("daemon", MAIN, FLAG, "on", |b, c, s| put(&mut c.core.daemon, b.flag(s))),
    no_effect("debug_points", MAIN, ONE, "", tuning::debug_points, "there are no such points"),
    core("env", MAIN, ONE, "", |b, c, s| c.core.process.environment.extend(b.env(s))).again().documented("TZ"),
    core("error_log", MAIN, at_least(1), "", |b, c, s| c.given.list(&mut c.core.error_log).extend(b.error_log(s)))
        .again()
        .documented("logs/error.log error"),
    block("include", ANYWHERE, ONE),
    no_effect(
        "load_module",
        MAIN,
        ONE,
        "",
        tuning::any,
        "what Balanza has is built in; it cannot load modules of NGINX",
    )
    .again(),
    no_effect("lock_file", MAIN, ONE, "logs/nginx.lock", tuning::any, "there is no lock file"),
    core("master_process", MAIN, FLAG, "on", |b, c, s| put(&mut c.core.master_process, b.flag(s))),
    core("pid", MAIN, ONE, "", |b, c, s| put(&mut c.core.pid, b.pid(s))).documented("logs/nginx.pid"),
    no_effect("timer_resolution", MAIN, ONE, "", tuning::msec, "times are not rounded"),
    core("user", MAIN, between(1, 2), "nobody", |b, c, s| put(&mut c.core.user, b.user(s))),
    core("worker_cpu_affinity", MAIN, at_least(1), "", |b, c, s| {
        put(&mut c.core.process.affinity, b.worker_cpu_affinity(s))
    }),
    core("worker_priority", MAIN, ONE, "", |b, c, s| put(&mut c.core.process.priority, b.worker_priority(s)))
        .documented("0"),
    core("worker_processes", MAIN, ONE, "1", |b, c, s| put(&mut c.core.worker_processes, b.worker_processes(s))),
    core("worker_rlimit_core", MAIN, ONE, "", |b, c, s| put(&mut c.core.process.rlimit_core, b.offset(s).map(Some))),
    core("worker_rlimit_nofile", MAIN, ONE, "", |b, c, s| put(&mut c.core.worker_rlimit_nofile, b.number(s).map(Some))),
    core("worker_shutdown_timeout", MAIN, ONE, "", |b, c, s| {
        put(&mut c.core.worker_shutdown_timeout, b.worker_shutdown_timeout(s))
    }),
    core("working_directory", MAIN, ONE, "", |b, c, s| {
        put(&mut c.core.process.working_directory, b.working_directory(s))
    }),
];

const EVENT_CORE: &[Directive] = &[
    no_effect("accept_mutex", EVENTS, FLAG, "off", tuning::flag, "each worker has listening sockets of its own"),
    no_effect("accept_mutex_delay", EVENTS, ONE, "500ms", tuning::msec, "each worker has listening sockets of its own"),
    no_effect("debug_connection", EVENTS, ONE, "", tuning::any, "`error_log … debug` holds for all connections")
        .again(),
    block("events", MAIN, NONE.block()),
    no_effect(
        "multi_accept",
        EVENTS,
        FLAG,
        "off",
        tuning::flag,
        "Balanza decides how many connections are accepted at once",
    ),
    no_effect("use", EVENTS, ONE, "epoll", tuning::event_method, "epoll is always used"),
    core("worker_connections", EVENTS, ONE, "512", |b, c, s| {
        put(&mut c.core.worker_connections, b.worker_connections(s))
    }),
];

const EPOLL: &[Directive] = &[
    no_effect("epoll_events", EVENTS, ONE, "512", tuning::number, "the number is fixed"),
    no_effect(
        "worker_aio_requests",
        EVENTS,
        ONE,
        "32",
        tuning::number,
        "there is no asynchronous input or output of files",
    ),
];

const GOOGLE_PERFTOOLS: &[Directive] =
    &[no_effect("google_perftools_profiles", MAIN, ONE, "", tuning::any, "profiles are not written")];

const OPENSSL: &[Directive] = &[
    no_effect("ssl_engine", MAIN, ONE, "", tuning::any, "OpenSSL is not used; keys are read from files"),
    no_effect(
        "ssl_object_cache_inheritable",
        MAIN,
        FLAG,
        "on",
        tuning::flag,
        "certificates are read once, when the configuration is loaded",
    ),
];

const QUIC_BPF: &[Directive] = &[no_effect("quic_bpf", MAIN, FLAG, "off", tuning::flag, "there is no QUIC")];

const REGEX: &[Directive] = &[no_effect(
    "pcre_jit",
    MAIN,
    FLAG,
    "off",
    tuning::flag,
    "expressions are compiled just in time where the machine allows it",
)];

const THREAD_POOL: &[Directive] = &[no_effect(
    "thread_pool",
    MAIN,
    between(2, 3),
    "default threads=32 max_queue=65536",
    tuning::thread_pool,
    "there are no thread pools",
)
.again()];
