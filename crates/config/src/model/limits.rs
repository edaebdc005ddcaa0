//! Limits of requests and connections, and who is let in.

use std::net::IpAddr;

use super::Level;
use crate::template::Template;

/// `limit_req_zone`.
#[derive(Debug, Clone, Default)]
pub struct RequestZone {
    /// Its name.
    pub name: String,
    /// Memory for its states, in bytes.
    pub size: u64,
    /// What requests are counted by; those with an empty key are not counted.
    pub key: Template,
    /// The key as it is written.
    pub key_text: String,
    /// Thousandths of a request in a second.
    pub rate: u64,
}

/// `limit_conn_zone`.
#[derive(Debug, Clone, Default)]
pub struct ConnectionZone {
    /// Its name.
    pub name: String,
    /// Memory for its states, in bytes.
    pub size: u64,
    /// What connections are counted by; those with an empty key are not counted.
    pub key: Template,
    /// The key as it is written.
    pub key_text: String,
}

/// `limit_req`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimit {
    /// Index into [`super::Http::request_zones`].
    pub zone: usize,
    /// `burst=` in thousandths of a request: with a greater excess a request is rejected.
    pub burst: u64,
    /// `delay=` in thousandths of a request: with a greater excess a request is delayed.
    pub delay: u64,
}

/// `limit_conn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Index into [`super::Http::connection_zones`], or into that of `stream`.
    pub zone: usize,
    /// Connections that a key may have.
    pub most: u32,
}

/// `limit_req…` and `limit_conn…` of a location, or of a server of `stream`.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `limit_req`, in order.
    pub requests: Vec<RequestLimit>,
    /// `limit_req_status` (503).
    pub request_status: u16,
    /// `limit_req_log_level` (error): of rejected requests; delays are logged one level lower.
    pub request_level: Level,
    /// `limit_req_dry_run` (off).
    pub request_dry_run: bool,
    /// `limit_conn`, in order.
    pub connections: Vec<ConnectionLimit>,
    /// `limit_conn_status` (503).
    pub connection_status: u16,
    /// `limit_conn_log_level` (error).
    pub connection_level: Level,
    /// `limit_conn_dry_run` (off).
    pub connection_dry_run: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            requests: Vec::new(),
            request_status: 503,
            request_level: Level::Error,
            request_dry_run: false,
            connections: Vec::new(),
            connection_status: 503,
            connection_level: Level::Error,
            connection_dry_run: false,
        }
    }
}

/// `allow` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// Whether it allows.
    pub allow: bool,
    /// The clients.
    pub who: AccessWho,
}

/// Clients that an access rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessWho {
    /// `all`.
    All,
    /// `unix:`.
    Unix,
    /// An address or a network: the address with host bits cleared, and the prefix length.
    Net(IpAddr, u8),
}

/// `satisfy`: how many of the conditions for access must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Satisfy {
    /// All of them.
    #[default]
    All,
    /// One of them.
    Any,
}

/// `auth_basic` and `auth_basic_user_file`. Passwords are asked for where both are given.
#[derive(Debug, Clone, Default)]
pub struct AuthBasic {
    /// The realm; `None` for `off`. One that evaluates to "off" asks for no password either.
    pub realm: Option<Template>,
    /// The absolute path of the file with the passwords.
    pub user_file: Option<Template>,
}

impl AuthBasic {
    /// The realm and the file, where passwords are asked for.
    pub fn given(&self) -> Option<(&Template, &Template)> {
        self.realm.as_ref().zip(self.user_file.as_ref())
    }
}
