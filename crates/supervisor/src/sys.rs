//! The system calls that have no safe wrapper: the only unsafe code of this crate.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::unistd::ForkResult;

/// Which side of a fork this is.
pub enum Side {
    /// The process that called it.
    Parent,
    /// The new process.
    Child,
}

/// Forks a process that has one thread.
///
/// # Errors
/// What fork(2) says, and `InvalidInput` when the process has several threads: in the child of such a process locks
/// may stay locked for ever.
pub fn fork_single_threaded() -> io::Result<Side> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() > 1) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "fork() in a process with several threads"));
    }
    // SAFETY: the process has one thread (checked above), so the child inherits no lock held by another one and may
    // allocate and run any code.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { .. } => Ok(Side::Parent),
        ForkResult::Child => Ok(Side::Child),
    }
}

/// Takes ownership of descriptors that the kernel has just handed over by `SCM_RIGHTS`.
pub fn adopt_received(raw: &[RawFd]) -> Vec<OwnedFd> {
    raw.iter()
        .map(|&fd| {
            // SAFETY: recvmsg(2) installed these numbers for this message alone; no other code knows or closes them.
            unsafe { OwnedFd::from_raw_fd(fd) }
        })
        .collect()
}

/// Takes ownership of a descriptor that was inherited over exec, if it is open.
pub fn adopt_inherited(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: fcntl(F_GETFD) reads a flag and has no effect on memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if fd <= 2 || flags == -1 {
        return None;
    }
    // SAFETY: the descriptor is open, is named by the environment of this program as its own, and each number is
    // adopted once, before anything else is opened.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the nice value of this thread and of the threads that it starts.
///
/// # Errors
/// What setpriority(2) says.
pub fn set_priority(priority: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers and has no effect on memory.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets a socket option whose value is an int.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_socket_option(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<i32>()).expect("the size of an int");
    // SAFETY: the pointer and the size are those of a local int that outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), size) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
