//! `balanza doctor`: whether this machine can do what a configuration asks of it.

mod clock;
mod files;
mod finding;
mod kernel;
mod limits;
mod machine;
mod needs;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use balanza_config::{FileSystem, Severity, load};
use clap::Args;

use self::finding::{Finding, State};
use self::machine::Process;
use self::needs::Needs;
use crate::flags::Flags;
use crate::output;

/// Check whether this machine can do what the configuration asks of it.
///
/// Limits of the kernel, of the process and of its control group, local ports, the clock, logs, disk space,
/// certificates: for each what was found and what to set. The exit code is 0 if all is fine, 1 for warnings and 2 for
/// errors.
#[derive(Args)]
pub struct Options {
    /// The configuration; without it the one that balanza serves.
    #[arg(short = 'c', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where relative paths in the configuration start.
    #[arg(short = 'p', value_name = "DIRECTORY")]
    prefix: Option<PathBuf>,
    /// Directives in front of the configuration.
    #[arg(short = 'g', value_name = "DIRECTIVES")]
    globals: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Checks and prints.
pub fn run(options: &Options) -> ExitCode {
    let flags = Flags {
        file: options.file.clone(),
        prefix: options.prefix.clone(),
        globals: options.globals.clone(),
        ..Flags::default()
    };
    let installation = crate::installation(&flags);
    let (config, problems) = load(&FileSystem, &installation.options(&flags));
    let mut findings = vec![configuration(&installation.file, &problems)];
    if let Some(config) = config {
        findings.extend(examine(&Needs::of(&config)));
    }
    let text = if options.json {
        format!("{:#}\n", finding::json(&findings))
    } else {
        finding::table(&findings, output::colour())
    };
    if let Err(error) = output::print(&text) {
        return output::failure(&error);
    }
    match finding::worst(&findings) {
        State::Fine | State::Unknown => ExitCode::SUCCESS,
        State::Warning => ExitCode::from(1),
        State::Error => ExitCode::from(2),
    }
}

/// Whether the configuration can be loaded.
fn configuration(file: &Path, problems: &[balanza_config::Diagnostic]) -> Finding {
    const CHECK: &str = "configuration";
    let (errors, warnings): (Vec<_>, Vec<_>) = problems.iter().partition(|problem| problem.severity == Severity::Error);
    let file = file.display();
    let fix = format!("balanza -t -c {file}");
    match (errors.first(), warnings.first()) {
        (Some(first), _) => Finding::error(CHECK, format!("{file}: {} errors: {}", errors.len(), first.message), fix),
        (None, Some(first)) => {
            Finding::warning(CHECK, format!("{file}: {} warnings: {}", warnings.len(), first.message), fix)
        }
        (None, None) => Finding::fine(CHECK, file.to_string()),
    }
}

fn examine(needs: &Needs) -> Vec<Finding> {
    let process = Process::of(needs.pid.as_deref());
    let is_root = nix::unistd::geteuid().is_root();
    // What the control group leaves of them is among what the standard library counts.
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = needs.threads.unwrap_or(available);
    let value = machine::sysctl;
    let ports = value("net.ipv4.ip_local_port_range");
    let hard = process.limits().as_deref().and_then(limits::hard_limit);
    let of_group = |file, old| machine::least_memory(&process.group_values(file, old));
    let most = of_group("memory.max", Some(("memory", "memory.limit_in_bytes")));
    let high = of_group("memory.high", None);
    let memory = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(limits::total_memory);
    let quotas = process.group_values("cpu.max", None);
    let quota = quotas.iter().filter_map(|text| limits::quota(text)).min_by(f64::total_cmp);
    let (tracked_most, tracked) = (value("net.netfilter.nf_conntrack_max"), value("net.netfilter.nf_conntrack_count"));

    let mut findings = vec![
        kernel::reuseport(value("kernel.osrelease").as_deref()),
        kernel::backlog(needs.backlog, value("net.core.somaxconn").as_deref()),
        limits::descriptors(needs, threads, hard, is_root, &process.name),
        kernel::local_ports(needs, threads, ports.as_deref()),
        kernel::reserved_ports(needs, ports.as_deref(), value("net.ipv4.ip_local_reserved_ports").as_deref()),
        kernel::time_wait(needs, value("net.ipv4.tcp_tw_reuse").as_deref()),
        kernel::conntrack(needs, threads, tracked_most.as_deref(), tracked.as_deref()),
        limits::memory(needs.memory, most, high, memory),
        limits::processors(needs.threads, available, quota),
        clock::synchronised(&machine::clock()),
    ];
    findings.extend(needs.logs.iter().map(|file| machine::log(file)));
    findings.extend(needs.temporary.iter().map(|directory| machine::temporary(directory)));
    let (uid, groups) = match machine::account(&needs.user).filter(|_| is_root) {
        Some((uid, groups)) => (uid, groups),
        None => (nix::unistd::geteuid().as_raw(), vec![nix::unistd::getegid().as_raw()]),
    };
    let user = if is_root { needs.user.user.as_str() } else { "this account" };
    findings.extend(needs.states.iter().map(|file| {
        let rights = file.parent().and_then(machine::rights);
        files::state_file(file, rights, (user, uid, &groups))
    }));
    let mut directories: Vec<PathBuf> = needs.directories().into_iter().map(Path::to_path_buf).collect();
    if needs.temporary.is_empty() {
        directories.push(std::env::temp_dir());
    }
    findings.extend(machine::rooms(directories).into_iter().map(|(directory, room)| files::room(&directory, room)));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
    findings.extend(needs.certificates.iter().map(|(file, ends)| files::certificate(file, *ends, now)));
    findings
}
