//! The demo: three servers of different speed, a balancer in front of them, and a live picture of who gets what.
//!
//! The servers are [targets](crate::target) inside this process. The balancer is a process of its own, started the way
//! an operator would: a directory with an nginx.conf, and `balanza -p DIR -c DIR/nginx.conf -g 'daemon off;'`.

mod algorithm;
mod balancer;
mod config;
mod load;
mod screen;
mod trouble;

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::signals::EndSignals;
use crate::target::{Handle, Target, Workload};
pub use algorithm::Algorithm;
use balancer::Balancer;
use load::Load;
use screen::Screen;
use trouble::Troubles;

/// Show Balanza at work: three small servers of different speed, and a balancer
/// in front of them.
///
/// Starts the servers and the balancer, says what to try, puts a gentle load on it
/// and shows live which server gets how much. Ctrl-C ends all of it and leaves
/// nothing behind. --print-config shows the balancer's nginx.conf.
///
/// Algorithms are named as `balanza algorithms` lists them, with their parameters, or
/// written as in nginx.conf. Under more load they differ:
///
///   balanza demo --load 360
///   balanza demo --load 360 --algorithm least_conn
///   balanza demo --load 360 --algorithm 'bounded_hash $uri balance_factor=150'
///   balanza demo --load 360 --algorithm 'hash $request_uri consistent'
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Port of the balancer on 127.0.0.1; 0 takes any free one. The servers take the ports that follow, where free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// How the balancer chooses a server: a name that `balanza algorithms` prints, or a directive of nginx.conf
    #[arg(long, value_name = "ALGORITHM", default_value = "round_robin")]
    pub algorithm: Algorithm,

    /// Number of servers; their speeds are 1, 1/2, 1/4, 1, 1/2, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: u16,

    /// Requests a second that the demo sends by itself, 0 for none
    #[arg(long, value_name = "RPS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub load: u32,

    /// Print the balancer's configuration and start nothing
    #[arg(long)]
    pub print_config: bool,

    /// Put this program in the balancer's place, for example /usr/sbin/nginx; it gets the same command line and file
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Speeds of the servers, in turn.
const SPEEDS: [f64; 3] = [1.0, 0.5, 0.25];

/// What a request costs at speed 1: 40 ms in the mean, and never quite the same.
const WORKLOAD: Workload = Workload::Poisson { mean: 4.0, step: Duration::from_millis(10) };

/// Requests that each server works on at once, so that more load than it carries makes a queue.
const CONCURRENCY: usize = 16;

/// How long the balancer may take until it listens.
const START_MAX: Duration = Duration::from_secs(15);

/// Runs the demo until INT, TERM, HUP or QUIT.
///
/// Errors: the port is in use; the balancer does not start (its own message is part of the error) or ends by itself.
pub fn run(options: Options) -> anyhow::Result<()> {
    let mut out = io::stdout();
    let result = if options.print_config {
        let text = config::text(options.port, &options.algorithm, &addresses(&options), Path::new("/path/to"));
        out.write_all(text.as_bytes()).map_err(anyhow::Error::from)
    } else {
        let terminal = out.is_terminal();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // From here on Ctrl-C ends the wait below instead of the process, so everything is taken down.
            let mut signals = EndSignals::install().context("cannot handle signals")?;
            show(&options, &mut out, terminal, signals.recv()).await
        })
    };
    // Whoever read the output went away (`balanza demo | head`): an end like any other.
    match result {
        Err(error) if error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe) => Ok(()),
        result => result,
    }
}

/// The servers' addresses when all the ports that follow the balancer's are free.
fn addresses(options: &Options) -> Vec<SocketAddr> {
    (1..=options.servers).map(|offset| local(after(options.port, offset))).collect()
}

/// The port `offset` places further; any free one when there is none.
fn after(port: u16, offset: u16) -> u16 {
    if port == 0 { 0 } else { port.checked_add(offset).unwrap_or(0) }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Starts everything, draws on `out` until `end`, and takes everything down.
async fn show(
    options: &Options,
    out: &mut dyn Write,
    terminal: bool,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // Clients and servers are in this process: each request has two of its descriptors.
    crate::environment::raise_limits();
    let port = free_port(options.port)?;
    let servers: Vec<Handle> = (0..options.servers).map(|index| start_server(port, index)).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Handle::address).collect();
    let config = |directory: &Path| config::text(port, &options.algorithm, &addresses, directory);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find this program's file")?,
    };
    tokio::pin!(end);

    let mut balancer = Balancer::start(&program, config)?;
    tokio::select! {
        ready = balancer.ready(local(port), START_MAX) => ready?,
        () = &mut end => return Ok(()),
    }
    introduce(out, port, &options.algorithm, &balancer)?;

    let load = Load::start(local(port), options.load);
    let mut troubles = Troubles::follow(&balancer.error_log()).context("cannot read the balancer's log")?;
    let mut screen = Screen::new(terminal, servers.iter().zip(SPEEDS.into_iter().cycle()).map(|(_, speed)| speed));
    let mut redraw = tokio::time::interval(screen.interval());
    let mut watch = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            _ = redraw.tick() => {
                let stats: Vec<_> = servers.iter().map(Handle::stats).collect();
                screen.draw(out, &stats, load.counts(), troubles.summary().as_deref())?;
            }
            _ = watch.tick() => balancer.check()?,
            () = &mut end => break,
        }
    }
    drop(load);
    balancer.stop();
    writeln!(out, "\nStopped: the balancer, {} servers, and the files.", servers.len())?;
    Ok(())
}

/// The port itself, or any free one for 0.
fn free_port(port: u16) -> anyhow::Result<u16> {
    match TcpListener::bind(local(port)).and_then(|listener| listener.local_addr()) {
        Ok(address) => Ok(address.port()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let other = after(port, 1000).max(1024);
            anyhow::bail!("port {port} is in use: try another with `{} demo --port {other}`", program_as_typed())
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            anyhow::bail!("port {port} needs root: try another with `{} demo --port 8080`", program_as_typed())
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {}", local(port))),
    }
}

/// Starts the server of this index on the port after the balancer's; when that is in use, on any free one.
fn start_server(port: u16, index: u16) -> anyhow::Result<Handle> {
    let target = |port| Target {
        name: format!("s{}", index + 1),
        listen: local(port),
        workload: WORKLOAD,
        speed: SPEEDS[usize::from(index) % SPEEDS.len()],
        concurrency: Some(CONCURRENCY),
        report_load: true,
        seed: u64::from(index),
        ..Target::default()
    };
    target(after(port, index + 1)).spawn().or_else(|_| target(0).spawn())
}

/// This program as the user called it, so that what is suggested can be typed: it need not be on the PATH.
fn program_as_typed() -> String {
    let typed = std::env::args().next().unwrap_or_else(|| "balanza".into());
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if typed.chars().all(plain) { typed } else { format!("'{}'", typed.replace('\'', "'\\''")) }
}

/// A few lines only, so that the table stays in sight on a small terminal.
fn introduce(out: &mut dyn Write, port: u16, algorithm: &Algorithm, balancer: &Balancer) -> io::Result<()> {
    let url = format!("http://127.0.0.1:{port}/");
    writeln!(
        out,
        "Balancing by {algorithm} on {url}. Try:
  {curl:<36} the answer's X-Server names the server
  {reload:<36} reload after a change of its file:
  {nothing:<36} {file}
Ctrl-C ends all of it. Then compare:
  {program} demo --load 360
  {program} demo --load 360 --algorithm least_conn
",
        program = program_as_typed(),
        curl = format!("curl -i {url}"),
        reload = format!("kill -HUP {}", balancer.pid()),
        nothing = "",
        file = balancer.config_path().display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(algorithm: &str) -> Options {
        Options {
            port: 0,
            algorithm: algorithm.parse().unwrap(),
            servers: 3,
            load: 100,
            print_config: false,
            program: Some("/usr/sbin/nginx".into()),
        }
    }

    async fn shown(options: &Options, terminal: bool, seconds: u64) -> anyhow::Result<String> {
        let mut out = Vec::new();
        show(options, &mut out, terminal, tokio::time::sleep(Duration::from_secs(seconds))).await?;
        Ok(String::from_utf8(out)?)
    }

    #[tokio::test]
    async fn a_balancer_shares_the_load_and_everything_ends() {
        let text = shown(&options("round_robin"), false, 5).await.unwrap();
        let path = text.split_whitespace().find(|word| word.ends_with("/nginx.conf")).unwrap();
        assert!(!std::path::Path::new(path).exists(), "{path} was left behind");
        let pid = text.split_once("kill -HUP ").unwrap().1.split_whitespace().next().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the balancer {pid} was left behind");

        let last = text.lines().rfind(|line| line.contains("s1 ")).unwrap();
        let requests = |name: &str| -> f64 {
            let field = last.split(" | ").find(|field| field.contains(&format!("{name} "))).unwrap();
            field.split_once(&format!("{name} ")).unwrap().1.split_whitespace().next().unwrap().parse().unwrap()
        };
        let counts = [requests("s1"), requests("s2"), requests("s3")];
        let total: f64 = counts.iter().sum();
        assert!(total > 200.0, "{text}");
        // The slow server's answers in flight are not counted yet.
        assert!(counts.iter().all(|count| (count / total - 1.0 / 3.0).abs() < 0.07), "{counts:?}");
        assert!(last.contains(" 0 failed"), "{last}");
    }

    /// The introduction and the table of as many servers as there are speeds fit on a terminal of 24 lines.
    #[tokio::test]
    async fn a_small_terminal_shows_introduction_and_table() {
        for algorithm in ["round_robin", "hash $request_uri consistent"] {
            let text = shown(&options(algorithm), true, 5).await.unwrap();
            let (before, _) = text.split_once("\x1b[?7l").unwrap();
            assert!(before.lines().count() <= 8, "{before}");
            // The tests' own program has a longer path than any that is typed.
            let typed = before.replace(&program_as_typed(), "target/release/balanza");
            assert!(typed.lines().all(|line| line.chars().count() <= 80), "{before}");
            assert!(before.contains(&format!("Balancing by {algorithm} on ")), "{before}");
            assert!(before.contains("--load 360 --algorithm least_conn"), "{before}");
        }
    }

    #[tokio::test]
    async fn a_balancer_that_refuses_its_configuration_is_quoted() {
        let error = shown(&options("no_such_algorithm"), false, 10).await.unwrap_err().to_string();
        assert!(error.contains("unknown directive \"no_such_algorithm\""), "{error}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_a_way_out() {
        let taken = TcpListener::bind(local(0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = shown(&Options { port, ..options("random") }, false, 10).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} is in use")) && error.contains("--port"), "{error}");
    }

    #[test]
    fn servers_take_the_ports_that_follow_where_they_are_free() {
        let balancer = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
        let first = start_server(balancer, 0).unwrap();
        let again = start_server(balancer, 0).unwrap();
        assert_ne!(first.address(), again.address());
        assert_eq!((after(8080, 2), after(65535, 1), after(0, 3)), (8082, 0, 0));
    }
}
