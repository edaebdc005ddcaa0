//! What is known of a client, and what it is told to be known by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::AccessWho;
use crate::names::Wildcards;
use crate::regex::Regex;
use crate::template::Template;

/// Directives about the client.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    /// Where its address comes from.
    pub real_ip: RealIp,
    /// `valid_referers`; none if every one is valid.
    pub referers: Option<Arc<Referers>>,
    /// `secure_link…`.
    pub secure_link: SecureLink,
    /// `userid…`.
    pub user_id: UserId,
    /// `modern_browser` and `ancient_browser`.
    pub browsers: Browsers,
}

/// `set_real_ip_from` and what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct RealIp {
    /// `set_real_ip_from`: those who are believed; none if addresses are not replaced.
    pub from: Vec<AccessWho>,
    /// `real_ip_header` (X-Real-IP).
    pub header: RealIpHeader,
    /// `real_ip_recursive` (off).
    pub recursive: bool,
}

/// `real_ip_header`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RealIpHeader {
    /// `X-Real-IP`.
    #[default]
    XRealIp,
    /// A field, all of its lines. Lower case.
    Field(Box<[u8]>),
    /// `proxy_protocol`.
    ProxyProtocol,
}

/// `valid_referers`. Hosts are lower case; each may have the beginning of a path.
#[derive(Debug, Clone, Default)]
pub struct Referers {
    /// `none`: no Referer is valid.
    pub none: bool,
    /// `blocked`: one without a scheme is valid.
    pub blocked: bool,
    /// Hosts.
    pub exact: HashMap<Box<[u8]>, Box<[u8]>>,
    /// Hosts with a wildcard.
    pub wildcards: Wildcards<Box<[u8]>>,
    /// Expressions for what follows the scheme.
    pub regexes: Vec<Regex>,
    /// Expressions for the host, of `server_names`.
    pub names: Vec<Regex>,
}

/// `secure_link` and what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct SecureLink {
    /// `secure_link`: the checksum, perhaps with a time behind a comma.
    pub link: Option<Template>,
    /// `secure_link_md5`: what the checksum is of.
    pub md5: Option<Template>,
    /// `secure_link_secret`.
    pub secret: Option<Box<[u8]>>,
}

/// `userid…`.
#[derive(Debug, Clone, Default)]
pub struct UserId {
    /// `userid` (off).
    pub mode: UserIdMode,
    /// `userid_name` (uid).
    pub name: Box<[u8]>,
    /// `userid_domain` (none).
    pub domain: Option<Box<[u8]>>,
    /// `userid_path` (/).
    pub path: Box<[u8]>,
    /// `userid_expires` (off).
    pub expires: UserIdExpires,
    /// `userid_flags` (off): "; secure" and the like.
    pub flags: Box<[u8]>,
    /// `userid_mark` (off).
    pub mark: Option<u8>,
    /// `userid_p3p` (none).
    pub p3p: Option<Box<[u8]>>,
    /// `userid_service`.
    pub service: Option<u32>,
}

/// `userid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[allow(missing_docs)]
pub enum UserIdMode {
    #[default]
    Off,
    Log,
    V1,
    On,
}

/// `userid_expires`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum UserIdExpires {
    #[default]
    Off,
    Max,
    After(Duration),
}

/// `modern_browser` and `ancient_browser`.
#[derive(Debug, Clone, Default)]
pub struct Browsers {
    /// `modern_browser`: kinds with the least version that is modern, in the order in which they are looked for.
    pub modern: Vec<(BrowserKind, u64)>,
    /// `modern_browser unlisted`.
    pub unlisted_are_modern: bool,
    /// `ancient_browser`: parts of User-Agent.
    pub ancient: Vec<Box<[u8]>>,
    /// `ancient_browser netscape4`.
    pub netscape4: bool,
    /// `modern_browser_value` (1).
    pub modern_value: Box<[u8]>,
    /// `ancient_browser_value` (1).
    pub ancient_value: Box<[u8]>,
}

/// A browser that `modern_browser` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserKind {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What precedes its version in User-Agent.
    pub mark: &'static [u8],
    /// How far from the mark the version begins.
    pub length: usize,
    /// Bytes of User-Agent that the mark is behind.
    pub skipped: usize,
}
