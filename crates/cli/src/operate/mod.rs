//! `balanza status`, `drain`, `undrain`, `set-weight` and `experiment`: a running balancer, operated by its API.

mod experiment;
mod servers;
mod status;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

pub use self::experiment::{Experiment, run as experiment};
pub use self::servers::Server;
use crate::api::ADDRESS;
use crate::api::client::Address;
use crate::output;

/// The exit code when the API cannot be reached.
const UNREACHABLE: u8 = 3;
/// The exit code when `--wait` takes longer than `--timeout`.
const TOO_LONG: u8 = 4;
/// Between two looks at a server that drains.
const PAUSE: Duration = Duration::from_millis(200);

/// Where an upstream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Http,
    Stream,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Stream => "stream",
        }
    }
}

/// Where to ask, and how to answer.
#[derive(Args)]
struct Common {
    /// Where the API is.
    #[arg(long, value_name = "URL", default_value = ADDRESS)]
    url: Address,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Which upstream, if http and stream have one of the same name.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
}

/// Show the servers of a running balancer once, with an exit code for scripts.
///
/// The exit code is 0 if all servers work or were taken out by an operator, 1 if a server does not work, 2 if no server
/// of an upstream works, 3 if the API cannot be reached. The configuration needs a location with "api;".
#[derive(Args)]
pub struct Status {
    /// Only the servers of this upstream.
    upstream: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Send no new requests to a server.
///
/// Requests in flight are finished, sessions of stream too. Clients that `sticky` binds to the server still use it. The
/// configuration needs a location with "api write=on;", and the upstream needs a `zone`.
///
/// The exit code is 0 if it is done, 1 if it is refused, 3 if the API cannot be reached, 4 if --wait took too long.
#[derive(Args)]
pub struct Drain {
    /// The upstream.
    upstream: String,
    /// The server, as in the configuration, or its address.
    server: String,
    /// Wait until its last request has ended.
    #[arg(long)]
    wait: bool,
    /// Seconds until the server is set down and what it still serves is closed.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// With --wait: seconds to wait at most.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300")]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

/// Send requests to a server again that was drained or is down.
#[derive(Args)]
pub struct Undrain {
    /// The upstream.
    upstream: String,
    /// The server, as in the configuration, or its address.
    server: String,
    #[command(flatten)]
    common: Common,
}

/// Change the weight of a server.
///
/// The change holds at once and outlives a reload. A restart begins with the configuration.
#[derive(Args)]
pub struct SetWeight {
    /// The upstream.
    upstream: String,
    /// The server, as in the configuration, or its address.
    server: String,
    /// The new weight.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    weight: u32,
    #[command(flatten)]
    common: Common,
}

impl Common {
    /// The protocol's name, if one is given.
    fn protocol(&self) -> Option<&'static str> {
        self.protocol.map(Protocol::name)
    }

    /// All servers that run.
    fn servers(&self) -> anyhow::Result<Vec<Server>> {
        servers(&self.url)
    }

    /// The servers that the command line names.
    fn find(&self, all: &[Server], upstream: &str, server: &str) -> anyhow::Result<Vec<Server>> {
        let of_upstream = servers::of_upstream(all, upstream, self.protocol()).map_err(anyhow::Error::msg)?;
        let found = servers::named(&of_upstream, server).map_err(anyhow::Error::msg)?;
        Ok(found.into_iter().cloned().collect())
    }

    /// Changes the named servers by what `body` returns for each, and returns them as they are then.
    fn change(&self, upstream: &str, server: &str, body: impl Fn(&Server) -> Value) -> anyhow::Result<Vec<Server>> {
        let all = self.servers()?;
        let found = self.find(&all, upstream, server)?;
        if found.iter().any(|server| !server.changeable) {
            bail!("upstream \"{upstream}\" cannot be changed: add \"zone {upstream} 64k;\" to it and reload");
        }
        let access = self.url.ask("GET", "balanza/access", None)?;
        if access["write"] != true {
            bail!(
                "this API is read-only: write \"api write=on;\" in its location and reload, or name another with --url"
            );
        }
        for server in &found {
            let path = format!("9/{}/upstreams/{upstream}/servers/{}", server.protocol, server.id);
            self.url.ask("PATCH", &path, Some(&body(server).to_string()))?;
        }
        let all = self.servers()?;
        self.find(&all, upstream, server)
    }

    fn print(&self, servers: &[Server]) -> anyhow::Result<()> {
        let table = || status::table(servers, output::colour());
        output::print(&if self.json { format!("{:#}\n", status::json(servers)) } else { table() })
    }

    /// The exit code of a result. An API that does not answer has a code of its own.
    fn finish(&self, result: anyhow::Result<ExitCode>) -> ExitCode {
        let error = match result {
            Ok(code) => return code,
            Err(error) => error,
        };
        // A refusal comes from an API that answers.
        if let Err(unreachable) = self.url.ask("GET", "balanza/access", None) {
            let hint = "is there a location with \"api;\"? --url names another address";
            output::say(&format!("balanza: {unreachable:#} ({hint})"));
            return ExitCode::from(UNREACHABLE);
        }
        output::failure(&error)
    }
}

/// All servers that run, from the API at this address.
pub fn servers(url: &Address) -> anyhow::Result<Vec<Server>> {
    let mut all = Vec::new();
    for protocol in ["http", "stream"] {
        let courses = url.ask("GET", &format!("balanza/{protocol}/upstreams"), None)?;
        // A balancer without streams has no such path.
        let upstreams = url.ask("GET", &format!("9/{protocol}/upstreams"), None).unwrap_or(Value::Null);
        all.extend(servers::read(protocol, &courses, &upstreams));
    }
    Ok(all)
}

/// Shows the servers.
pub fn status(options: &Status) -> ExitCode {
    let common = &options.common;
    common.finish((|| {
        let mut shown = common.servers()?;
        match &options.upstream {
            Some(name) => {
                let found = servers::of_upstream(&shown, name, common.protocol()).map_err(anyhow::Error::msg)?;
                shown = found.into_iter().cloned().collect();
            }
            None => shown.retain(|server| common.protocol().is_none_or(|it| it == server.protocol)),
        }
        common.print(&shown)?;
        Ok(ExitCode::from(status::health(&shown) as u8))
    })())
}

/// What takes a server out.
fn drained(deadline: Option<Duration>) -> Value {
    let mut body = json!({ "drain": true });
    if let Some(deadline) = deadline {
        body["drain_timeout"] = json!(format!("{}ms", deadline.as_millis()));
    }
    body
}

/// Reads a number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "it is not a number of seconds".to_owned())
}

/// What takes it in again: it is down if its deadline has passed.
fn undrained(server: &Server) -> Value {
    let mut body = json!({ "drain": false });
    if server.state == "down" {
        body["down"] = json!(false);
    }
    body
}

/// Drains a server.
pub fn drain(options: &Drain) -> ExitCode {
    let Drain { upstream, server, common, .. } = options;
    common.finish((|| {
        let mut found = common.change(upstream, server, |_| drained(options.deadline))?;
        let limit = options.timeout;
        let start = Instant::now();
        while options.wait && found.iter().any(|server| server.active > 0) {
            if start.elapsed() >= limit {
                common.print(&found)?;
                let left: u64 = found.iter().map(|server| server.active).sum();
                output::say(&format!("balanza: {left} requests are left after {} s", limit.as_secs_f64()));
                return Ok(ExitCode::from(TOO_LONG));
            }
            std::thread::sleep(PAUSE);
            found = common.find(&common.servers()?, upstream, server)?;
        }
        common.print(&found)?;
        Ok(ExitCode::SUCCESS)
    })())
}

/// Lets a server have requests again.
pub fn undrain(options: &Undrain) -> ExitCode {
    let Undrain { upstream, server, common } = options;
    common.finish((|| {
        common.print(&common.change(upstream, server, undrained)?)?;
        Ok(ExitCode::SUCCESS)
    })())
}

/// Changes a server's weight.
pub fn set_weight(options: &SetWeight) -> ExitCode {
    let SetWeight { upstream, server, weight, common } = options;
    common.finish((|| {
        common.print(&common.change(upstream, server, |_| json!({ "weight": weight }))?)?;
        Ok(ExitCode::SUCCESS)
    })())
}
