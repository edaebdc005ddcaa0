//! The demo: three servers of different speed, a balancer in front of them, and a live picture of what each server gets.
//!
//! The servers are [targets](crate::target) inside this process. The balancer is a process of its own, started the way
//! an operator would: a directory with an nginx.conf, and `balanza -p DIR -c DIR/nginx.conf -g 'daemon off;'`. A change of
//! the algorithm is a change of that file and a reload. A [guard](guard) cleans up if this process is killed.

mod algorithm;
mod balancer;
mod config;
mod connector;
mod farm;
mod guard;
mod keys;
mod load;
mod screen;
mod server;
mod terminal;
mod trouble;
mod view;

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use balanza_balancing::registry;
use tokio::time::MissedTickBehavior;

use crate::signals::EndSignals;
pub use algorithm::Algorithm;
use config::Features;
use farm::{Farm, Plan};
use keys::{Change, Command, Controls, Key};
use screen::{Frame, Screen};
use terminal::Keyboard;
use view::View;

/// Show Balanza at work: three small servers of different speed, and a balancer
/// in front of them.
///
/// Starts the servers and the balancer, puts a gentle load on it and shows live what
/// each server gets, and why. Keys choose another algorithm, slow down, stop, kill and
/// revive a server, change the load, and start a second farm to compare with. Ctrl-C
/// or q ends all of it and leaves nothing behind. --print-config shows the balancer's
/// nginx.conf. --tls serves HTTPS, and shows what is negotiated and how many handshakes
/// resume a session. Without a terminal, a line every two seconds has the same figures.
///
/// Algorithms are named as `balanza algorithms` lists them, with their parameters, or
/// written as in nginx.conf. Under more load they differ:
///
///   balanza demo --load 360 --versus least_conn
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

    /// Show a second farm, equal to the first, that balances by this algorithm
    #[arg(long, value_name = "ALGORITHM", conflicts_with = "print_config")]
    pub versus: Option<Algorithm>,

    /// Number of servers; their speeds are 1, 1/2, 1/4, 1, 1/2, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub servers: u16,

    /// Requests a second that the demo sends by itself, 0 for none
    #[arg(long, value_name = "RPS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=LOAD_MAX as i64))]
    pub load: u32,

    /// Serve HTTPS and HTTP/2, with a certificate that is made for the demo, and send the load the same way
    #[arg(long)]
    pub tls: bool,

    /// Print the balancer's configuration and start nothing
    #[arg(long)]
    pub print_config: bool,

    /// Put this program in the balancer's place, for example /usr/sbin/nginx; it gets the same command line and file
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Requests a second at most.
const LOAD_MAX: u32 = 10_000;

/// Between the ports of the two balancers.
const FARM_PORTS: u16 = 20;

/// Runs the demo until INT, TERM, HUP or QUIT.
///
/// Errors: the port is in use; the balancer does not start (its own message is part of the error) or ends by itself.
pub fn run(options: Options) -> anyhow::Result<()> {
    let mut out = io::stdout();
    let result = if options.print_config {
        let (servers, directory) = (addresses(&options), Path::new("/path/to"));
        let text = config::text(options.port, &options.algorithm, &servers, directory, features(&options));
        out.write_all(text.as_bytes()).map_err(anyhow::Error::from)
    } else {
        let terminal = out.is_terminal();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // From here on Ctrl-C ends the wait below instead of the process, so everything is taken down.
            let mut signals = EndSignals::install().context("cannot handle signals")?;
            let keyboard = terminal.then(Keyboard::open).flatten();
            show(&options, &mut out, terminal, keyboard, async {
                let _kind = signals.recv().await;
            })
            .await
        })
    };
    // The reader of the output has gone away (`balanza demo | head`): an end like any other.
    match result {
        Err(error) if error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe) => Ok(()),
        result => result,
    }
}

fn features(options: &Options) -> Features {
    Features { is_own: options.program.is_none(), tls: options.tls }
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
    mut keyboard: Option<Keyboard>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // Clients and servers are in this process: each request has two of its descriptors.
    crate::environment::raise_limits();
    let plan = Plan {
        algorithm: options.algorithm.clone(),
        port: free_port(options.port)?,
        servers: options.servers,
        rate: options.load,
        program: match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program's file")?,
        },
        features: features(options),
        stty: keyboard.as_ref().and_then(Keyboard::stty).cloned(),
    };
    tokio::pin!(end);

    let mut demo = tokio::select! {
        demo = Demo::start(plan, options.versus.as_ref()) => demo?,
        () = &mut end => return Ok(()),
    };
    introduce(out, &demo.farms)?;
    let mut screen = Screen::new(terminal, terminal::has_colours());
    let mut redraw = tokio::time::interval(screen.interval());
    let mut watch = tokio::time::interval(Duration::from_millis(200));
    // What a stall has missed is not made up for.
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    watch.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = redraw.tick() => demo.draw(&mut screen, out, keyboard.is_some())?,
            _ = watch.tick() => demo.farms.iter_mut().try_for_each(Farm::check)?,
            keys = pressed(keyboard.as_mut()) => {
                if keys.is_none() {
                    keyboard = None;
                }
                for key in keys.into_iter().flatten() {
                    // A second farm takes seconds to start.
                    let goes_on = tokio::select! {
                        goes_on = demo.press(key) => goes_on,
                        () = &mut end => false,
                    };
                    if !goes_on {
                        return demo.stop(out);
                    }
                }
                demo.draw(&mut screen, out, keyboard.is_some())?;
            }
            () = &mut end => return demo.stop(out),
        }
    }
}

/// The next keys; never any where there is no keyboard.
async fn pressed(keyboard: Option<&mut Keyboard>) -> Option<Vec<Key>> {
    match keyboard {
        Some(keyboard) => keyboard.keys().await,
        None => std::future::pending().await,
    }
}

/// The farms and what the user does to them.
struct Demo {
    plan: Plan,
    farms: Vec<Farm>,
    controls: Controls,
    started: Instant,
}

impl Demo {
    async fn start(plan: Plan, versus: Option<&Algorithm>) -> anyhow::Result<Self> {
        let first = Farm::start(plan.clone()).await?;
        let mut demo = Self { plan, farms: vec![first], controls: Controls::default(), started: Instant::now() };
        if let Some(algorithm) = versus {
            demo.add_farm(algorithm.clone()).await?;
        }
        Ok(demo)
    }

    /// A second farm, in the same condition as the first.
    async fn add_farm(&mut self, algorithm: Algorithm) -> anyhow::Result<()> {
        let port = after(self.plan.port, FARM_PORTS);
        let port = free_port(port).or_else(|_| free_port(0))?;
        let mut farm = Farm::start(Plan { algorithm, port, rate: self.farms[0].rate(), ..self.plan.clone() }).await?;
        for server in 0..farm.servers() {
            let condition = self.farms[0].condition(server);
            if condition != farm.condition(server) {
                farm.set_server(server, condition);
            }
        }
        self.farms.push(farm);
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, out: &mut dyn Write, keys: bool) -> io::Result<()> {
        let views: Vec<View> = self.farms.iter_mut().map(|farm| farm.view(self.controls.server)).collect();
        let elapsed = self.started.elapsed();
        screen.draw(out, &Frame { views: &views, controls: &self.controls, keys, elapsed, size: terminal::size() })
    }

    /// Does what a key means; false when it means the end.
    async fn press(&mut self, key: Key) -> bool {
        let Some(command) = self.controls.press(key, usize::from(self.plan.servers), self.farms.len()) else {
            return true;
        };
        match command {
            Command::Quit => return false,
            Command::Algorithm(name) => self.farms[self.controls.farm].set_algorithm(&name),
            Command::Other(places) => {
                let farm = &mut self.farms[self.controls.farm];
                let name = other(farm.wanted(), places);
                farm.set_algorithm(name);
            }
            // To equal farms the same happens.
            Command::Server(server, condition) => {
                self.farms.iter_mut().for_each(|farm| farm.set_server(server, condition));
            }
            Command::Load(change) => {
                let rate = changed(self.farms[0].rate(), change);
                self.farms.iter().for_each(|farm| farm.set_rate(rate));
            }
            Command::Versus if self.farms.len() > 1 => {
                self.farms.pop();
                self.controls.farm = 0;
            }
            Command::Versus => {
                let algorithm = other(self.farms[0].algorithm(), 1).parse();
                let added = match algorithm {
                    Ok(algorithm) => self.add_farm(algorithm).await,
                    Err(error) => Err(anyhow::Error::msg(error)),
                };
                match added {
                    Ok(()) => self.controls.farm = 1,
                    Err(error) => self.farms[0].tell(format!("no second farm: {error:#}")),
                }
            }
        }
        true
    }

    fn stop(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (farms, servers) = (self.farms.len(), self.plan.servers);
        drop(self.farms);
        let what = if farms == 1 { "the balancer".into() } else { format!("{farms} balancers") };
        writeln!(out, "\nStopped: {what}, {} servers, and the files.", farms * usize::from(servers))?;
        Ok(())
    }
}

/// The name of the algorithm so many places further in the registry than this one.
fn other(algorithm: &Algorithm, places: isize) -> &'static str {
    let names: Vec<&'static str> = registry::entries().iter().map(|entry| entry.name).collect();
    let now = algorithm.entry().and_then(|entry| names.iter().position(|name| *name == entry.name)).unwrap_or(0);
    names[(now as isize + places).rem_euclid(names.len() as isize) as usize]
}

fn changed(rate: u32, change: Change) -> u32 {
    match change {
        Change::More => (rate + rate / 4 + 10).min(LOAD_MAX),
        Change::Less if rate <= 20 => 0,
        Change::Less => rate * 4 / 5,
    }
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

/// This program as the user called it, so that what is suggested can be typed: it need not be on the PATH.
fn program_as_typed() -> String {
    let typed = std::env::args().next().unwrap_or_else(|| "balanza".into());
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if typed.chars().all(plain) { typed } else { format!("'{}'", typed.replace('\'', "'\\''")) }
}

/// A few lines only, so that the tables stay in sight on a small terminal.
fn introduce(out: &mut dyn Write, farms: &[Farm]) -> io::Result<()> {
    for farm in farms {
        let (algorithm, url) = (farm.algorithm(), farm.url());
        writeln!(out, "Balancing by {algorithm} on {url}. Try:")?;
        if let Some(dashboard) = farm.dashboard() {
            writeln!(out, "  {dashboard:<36} in a browser: what runs, and buttons")?;
        }
        match farm.certificate_path() {
            None => writeln!(out, "  {:<36} X-Server names the server", format!("curl -i {url}"))?,
            Some(path) => writeln!(out, "  curl -i --cacert {} {url}", path.display())?,
        }
        writeln!(out, "  {:<36} reload after a change of its file:", format!("kill -HUP {}", farm.pid()))?;
        writeln!(out, "  {:<36} {}", "", farm.config_path().display())?;
    }
    if farms.len() == 1 {
        writeln!(out, "Ctrl-C ends all of it. Two algorithms side by side:")?;
        let tls = if farms[0].certificate_path().is_some() { "--tls " } else { "" };
        writeln!(out, "  {} demo {tls}--load 360 --versus least_conn", program_as_typed())?;
    } else {
        writeln!(out, "Ctrl-C ends all of it.")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// What is written, to be looked at meanwhile.
    #[derive(Clone, Default)]
    struct Paper(Rc<RefCell<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn options(algorithm: &str) -> Options {
        Options {
            port: 0,
            algorithm: algorithm.parse().unwrap(),
            versus: None,
            servers: 3,
            load: 100,
            tls: false,
            print_config: false,
            program: Some("/usr/sbin/nginx".into()),
        }
    }

    /// What is shown in so many seconds, from the introduction on: before, a busy machine takes its time.
    async fn shown(options: &Options, terminal: bool, seconds: u64) -> anyhow::Result<String> {
        let paper = Paper::default();
        let seen = paper.clone();
        let end = async move {
            while seen.0.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        };
        show(options, &mut paper.clone(), terminal, None, end).await?;
        Ok(String::from_utf8(paper.0.take())?)
    }

    #[tokio::test]
    async fn a_balancer_shares_the_load_and_everything_ends() {
        let text = shown(&options("round_robin"), false, 9).await.unwrap();
        let path = text.split_whitespace().find(|word| word.ends_with("/nginx.conf")).unwrap();
        assert!(!std::path::Path::new(path).exists(), "{path} was left behind");
        let pid = text.split_once("kill -HUP ").unwrap().1.split_whitespace().next().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the balancer {pid} was left behind");

        let last = text.lines().rfind(|line| line.contains("s1 ")).unwrap();
        let requests = |name: &str| -> f64 {
            let field = last.split(" | ").find(|field| field.starts_with(&format!("{name} "))).unwrap();
            field.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let counts = [requests("s1"), requests("s2"), requests("s3")];
        let total: f64 = counts.iter().sum();
        assert!(total > 200.0, "{text}");
        // The slow server's answers in flight are not counted yet.
        assert!(counts.iter().all(|count| (count / total - 1.0 / 3.0).abs() < 0.07), "{counts:?}");
        assert!(last.contains(" 0 failed"), "{last}");
    }

    #[tokio::test]
    async fn two_farms_are_equal_in_all_but_the_algorithm() {
        let versus = Options { versus: Some("least_conn".parse().unwrap()), tls: true, ..options("round_robin") };
        let text = shown(&versus, false, 9).await.unwrap();
        let last = |algorithm: &str| text.lines().rfind(|line| line.contains(&format!("| {algorithm} |"))).unwrap();
        for line in [last("round_robin"), last("least_conn")] {
            assert!(line.contains("load: 100/s") && line.contains(" 0 failed"), "{text}");
            assert!(line.contains("HTTP/2 over TLSv1.") && !line.contains(" 0% resumed"), "{text}");
        }
        assert!(text.ends_with("Stopped: 2 balancers, 6 servers, and the files.\n"), "{text}");
    }

    /// The introduction and the table of as many servers as there are speeds fit on a terminal of 24 lines.
    #[tokio::test]
    async fn a_small_terminal_shows_introduction_and_table() {
        for algorithm in ["round_robin", "hash $request_uri consistent"] {
            let text = shown(&options(algorithm), true, 2).await.unwrap();
            let (before, _) = text.split_once("\x1b[?7l").unwrap();
            assert!(before.lines().count() <= 8, "{before}");
            // The tests' own program has a longer path than any that is typed.
            let typed = before.replace(&program_as_typed(), "target/release/balanza");
            assert!(typed.lines().all(|line| line.chars().count() <= 80), "{before}");
            assert!(before.contains(&format!("Balancing by {algorithm} on ")), "{before}");
            assert!(before.contains("--load 360 --versus least_conn"), "{before}");
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
    fn ports_that_follow() {
        assert_eq!((after(8080, 2), after(65535, 1), after(0, 3)), (8082, 0, 0));
    }

    #[test]
    fn the_load_goes_up_and_down_to_0() {
        assert_eq!((changed(0, Change::More), changed(40, Change::More)), (10, 60));
        assert_eq!((changed(100, Change::Less), changed(20, Change::Less)), (80, 0));
        assert_eq!(changed(LOAD_MAX, Change::More), LOAD_MAX);
    }

    #[test]
    fn arrows_go_through_the_registry() {
        let name: Algorithm = "round_robin".parse().unwrap();
        let next = other(&name, 1);
        assert_ne!(next, "round_robin");
        assert_eq!(other(&next.parse().unwrap(), -1), "round_robin");
        let all = (0..registry::entries().len()).fold("round_robin", |name, _| other(&name.parse().unwrap(), 1));
        assert_eq!(all, "round_robin", "once around");
    }
}
