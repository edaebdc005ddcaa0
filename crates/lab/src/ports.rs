//! Ports for what the lab starts.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::Context;

/// A port of 127.0.0.1 that is free now. It is below those that the kernel gives to clients: otherwise a connection to it
/// before a server listens could be one with itself.
pub(crate) fn free() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(20);
    (0..4_000)
        .map(|_| (20_000 + start.wrapping_add(NEXT.fetch_add(1, Relaxed)) % 4_000) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no port of 127.0.0.1 from 20000 to 23999 is free")
}
