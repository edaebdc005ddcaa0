//! What `ps` shows of the supervisor.
//!
//! The title of a process is its argument list, which safe code cannot change in place. So the supervisor executes
//! itself once more, with its title as the only argument and the real arguments in the environment.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Holds the arguments of a program that has a title, each ended by [`END`].
pub const ARGUMENTS: &str = "BALANZA_ARGUMENTS";

/// The unit separator of ASCII, which does not occur in a command line.
const END: u8 = 0x1f;

/// The arguments that the user gave, the program's name first.
pub fn arguments() -> Vec<OsString> {
    match std::env::var_os(ARGUMENTS) {
        Some(packed) => unpack(&packed),
        None => std::env::args_os().collect(),
    }
}

/// Gives this process the title of a supervisor; returns when it has it, or cannot have it.
pub fn become_supervisor(arguments: &[OsString]) {
    if std::env::var_os(ARGUMENTS).is_none() && !arguments.iter().any(|argument| argument.as_bytes().contains(&END)) {
        let mut title = OsString::from("balanza: master process");
        for argument in arguments {
            title.push(" ");
            title.push(argument);
        }
        // It returns only if it failed, and a title is not worth failing for.
        drop(Command::new("/proc/self/exe").arg0(title).env(ARGUMENTS, pack(arguments)).exec());
    }
    // The name of the executed file would be "exe" otherwise.
    let _ = nix::sys::prctl::set_name(name(arguments));
}

/// Whether the program was started by NGINX's name.
pub fn is_nginx(arguments: &[OsString]) -> bool {
    arguments.first().and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "nginx")
}

/// The name of the supervisor's process. Scripts of systems look for NGINX by it (`start-stop-daemon --name nginx`).
fn name(arguments: &[OsString]) -> &'static CStr {
    if is_nginx(arguments) { c"nginx" } else { c"balanza" }
}

fn pack(arguments: &[OsString]) -> OsString {
    let mut packed = Vec::new();
    for argument in arguments {
        packed.extend_from_slice(argument.as_bytes());
        packed.push(END);
    }
    OsString::from_vec(packed)
}

fn unpack(packed: &OsStr) -> Vec<OsString> {
    let mut arguments: Vec<_> =
        packed.as_bytes().split(|&byte| byte == END).map(|argument| OsStr::from_bytes(argument).to_owned()).collect();
    arguments.pop();
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_packing() {
        for arguments in [vec![], vec!["balanza"], vec!["./b", "", "-g", "daemon off; pid x;", ""]] {
            let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
            assert_eq!(unpack(&pack(&arguments)), arguments);
        }
    }

    #[test]
    fn the_process_has_the_name_that_it_was_started_by() {
        let of = |program: &str| name(&[program.into(), "-t".into()]);
        assert_eq!([of("nginx"), of("/usr/sbin/nginx")], [c"nginx"; 2]);
        assert_eq!([of("balanza"), of("/opt/nginx/balanza"), of("nginx-debug"), name(&[])], [c"balanza"; 4]);
    }
}
