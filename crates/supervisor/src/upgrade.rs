//! Replaces the binary while it serves (`USR2`): the new process inherits the listening sockets. NGINX does the same with
//! a variable of its own, so that either program takes over from the other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use balanza_config::model::Level;
use balanza_config::model::membership::Changes;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;

use crate::listen::Sockets;
use crate::log::Log;
use crate::sys;
use crate::{changes, title, worker};

/// Names the inherited sockets: `fd;fd;…`.
pub const INHERITED: &str = "BALANZA_SOCKETS";

/// The variable by which NGINX names them, in the same form.
pub const INHERITED_OF_NGINX: &str = "NGINX";

/// Names the descriptor of the changes of upstreams' servers.
pub const CHANGES: &str = "BALANZA_CHANGES";

/// The changes that a predecessor left to this process.
pub fn inherited_changes(log: &Log) -> Changes {
    let Ok(number) = std::env::var(CHANGES) else { return Changes::new() };
    let descriptor = number.parse().ok().and_then(sys::adopt_inherited).ok_or(io::ErrorKind::InvalidData.into());
    descriptor.and_then(changes::read).unwrap_or_else(|error| {
        log.write(Level::Emerg, format_args!("the changes of upstreams' servers cannot be taken over: {error}"));
        Changes::new()
    })
}

/// The list of the sockets that a predecessor left to this process, if there is one.
pub fn inherited_list() -> Option<String> {
    let of_nginx = || std::env::var(INHERITED_OF_NGINX).ok().filter(|list| is_list(list));
    std::env::var(INHERITED).ok().or_else(of_nginx)
}

/// Whether a text is a list of descriptors: a variable with the name of a program may have other values.
fn is_list(text: &str) -> bool {
    let numbers = || text.split_terminator([';', ':']);
    text.ends_with([';', ':']) && numbers().all(|number| number.parse::<u16>().is_ok())
}

/// The sockets of a predecessor's list.
pub fn adopt(list: &str, log: &Log) -> Sockets {
    let mut sockets = Sockets::default();
    let mut known = BTreeSet::new();
    for number in list.split_terminator([';', ':']) {
        // Each is adopted once.
        let first = number.parse().ok().filter(|number| known.insert(*number));
        let socket = first.and_then(sys::adopt_inherited);
        let adopted = match socket {
            Some(socket) => sockets.adopt(socket),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        if let Err(error) = adopted {
            log.write(Level::Emerg, format_args!("the inherited socket #{number} cannot be used: {error}"));
        }
    }
    sockets
}

/// Executes the program again, by the name that it was started with, with these sockets and changes.
///
/// # Errors
/// When there is no such program any more.
pub fn execute(arguments: &[OsString], sockets: &Sockets, changed: &Changes) -> io::Result<Pid> {
    let (program, rest) = arguments.split_first().ok_or(io::ErrorKind::NotFound)?;
    let changes = changes::store(changed)?;
    let mut descriptors: Vec<_> = sockets.iter().flat_map(|(_, sockets)| sockets).collect();
    let mut list = String::new();
    for descriptor in &descriptors {
        list.push_str(&format!("{};", descriptor.as_raw_fd()));
    }
    descriptors.push(changes.as_fd());
    let inherit = |flag: FdFlag| -> io::Result<()> {
        for descriptor in &descriptors {
            fcntl(descriptor.as_fd(), FcntlArg::F_SETFD(flag))?;
        }
        Ok(())
    };
    // No other thread can start a program in between.
    inherit(FdFlag::empty())?;
    let child = Command::new(program)
        .args(rest)
        .env(INHERITED_OF_NGINX, &list)
        .env(INHERITED, list)
        .env(CHANGES, changes.as_raw_fd().to_string())
        .env_remove(title::ARGUMENTS)
        .env_remove(worker::MARK)
        .spawn();
    inherit(FdFlag::FD_CLOEXEC)?;
    let id = i32::try_from(child?.id()).map_err(io::Error::other)?;
    Ok(Pid::from_raw(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_descriptors_are_told_from_other_texts() {
        for list in ["6;", "6;7;", "6:7:"] {
            assert!(is_list(list), "{list}");
        }
        for other in ["", "6", "/usr/sbin/nginx", "1.22;", ";", "-1;", "6;;", "99999999;"] {
            assert!(!is_list(other), "{other}");
        }
    }
}
