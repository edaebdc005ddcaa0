//! Certificates that a handshake with a client or a request names (`ssl_certificate` and `proxy_ssl_certificate` with
//! variables). Their files are read in the worker, with its rights, and kept by an `ssl_certificate_cache` or its like.

mod cache;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::hash::{Hash as _, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use balanza_config::log_text::Escaped;
use balanza_config::model::{NamedCertificates, ServerAddress, UpstreamTls};
use balanza_config::template::Template;
use balanza_config::{Secret, read_file};
use balanza_net::clock;
use balanza_net::shortage::describe;
use balanza_tls::certificates::{self, FileError};
use balanza_tls::client::ClientConfig;
use balanza_tls::hello::ClientHello;
use balanza_tls::sign::CertifiedKey;

pub use self::cache::Cache;
use self::cache::{Item, Key, Kind, Stamp};
use crate::servers::address::address_text;
use crate::undecided::Undecided;

/// Bytes that a file may have. A worker waits while it reads one.
const LARGEST: u64 = 1 << 20;

/// The values of `ssl_certificate` and `ssl_certificate_key` that name a certificate and its key, or are them.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    certificate: Secret,
    key: Secret,
}

impl Names {
    /// Hashes them: connections on which one certificate was shown are not for another.
    pub fn hash(&self, hasher: &mut impl Hasher) {
        [self.certificate.expose(), self.key.expose()].hash(hasher);
    }
}

/// Loads the certificates of a handshake with a client, with their keys. `render` appends the value of a template, `caches`
/// are those of the configuration.
///
/// # Errors
/// Why one cannot be loaded, for the error log.
pub fn load(
    named: &NamedCertificates,
    hello: &ClientHello,
    caches: &[RefCell<Cache>],
    mut render: impl FnMut(&Template, &mut Vec<u8>) -> Result<(), Undecided>,
) -> Result<Vec<Arc<CertifiedKey>>, String> {
    // It may be a part of a path, which the client must not lead elsewhere.
    if let Some(name) = hello.server_name.as_deref().filter(|name| name.starts_with('.') || name.contains('/')) {
        return Err(format!("cannot load a certificate: \"{}\" is no name of a host", Escaped(name.as_bytes())));
    }
    let of_pair = |pair| {
        let names = names(pair, &mut render);
        let names = names.map_err(|Undecided| "cannot load a certificate: its name is not known".to_owned())?;
        load_pair(named, &names, caches)
    };
    named.pairs.iter().map(of_pair).collect()
}

/// The names of the certificate that a request shows to servers; none if it shows none.
///
/// # Errors
/// A regular expression is undecided.
pub fn shown(
    named: &NamedCertificates,
    mut render: impl FnMut(&Template, &mut Vec<u8>) -> Result<(), Undecided>,
) -> Result<Option<Box<Names>>, Undecided> {
    let Some(pair) = named.pairs.first() else { return Ok(None) };
    let names = names(pair, &mut render)?;
    Ok((!names.certificate.expose().is_empty()).then(|| Box::new(names)))
}

fn names(
    (certificate, key): &(Template, Template),
    render: &mut impl FnMut(&Template, &mut Vec<u8>) -> Result<(), Undecided>,
) -> Result<Names, Undecided> {
    let mut value = |template| -> Result<Secret, Undecided> {
        let mut value = Vec::new();
        render(template, &mut value).map(|()| Secret::new(value))
    };
    Ok(Names { certificate: value(certificate)?, key: value(key)? })
}

/// What a handshake with a server takes: the certificate of the request, if it shows one.
///
/// # Errors
/// Why that cannot be loaded, for the error log.
pub fn client_config(
    tls: &UpstreamTls,
    names: Option<&Names>,
    caches: &[RefCell<Cache>],
    address: &ServerAddress,
) -> Result<Arc<ClientConfig>, String> {
    match (&tls.named, names) {
        (Some(named), Some(names)) => Ok(tls.context.with(load_pair(named, names, caches)?)),
        _ => Ok(tls.context.for_server(&address_text(address))),
    }
}

/// Loads a certificate and its key.
fn load_pair(named: &NamedCertificates, names: &Names, caches: &[RefCell<Cache>]) -> Result<Arc<CertifiedKey>, String> {
    let cache = named.cache.and_then(|cache| caches.get(cache));
    let mut pair = read_pair(named, names, cache)?;
    if let (Err(FileError::Mismatch), Some(cache)) = (&pair, cache) {
        // They expire one after the other. If both files were replaced, one can be new and the other old.
        for (kind, value) in [(Kind::Chain, &names.certificate), (Kind::Key, &names.key)] {
            // A key must not be copied into a path.
            if data(value).is_none() {
                cache.borrow_mut().forget(&Key { kind, path: path(named, value) });
            }
        }
        pair = read_pair(named, names, Some(cache))?;
    }
    pair.map_err(|error| failed(named, &names.key, Kind::Key, &error))
}

/// Both files' contents, put together.
fn read_pair(
    named: &NamedCertificates,
    Names { certificate, key }: &Names,
    cache: Option<&RefCell<Cache>>,
) -> Result<Result<Arc<CertifiedKey>, FileError>, String> {
    let chain = item(named, cache, certificate, Kind::Chain)?;
    let (Item::Chain(chain), Item::Key(secret)) = (chain, item(named, cache, key, Kind::Key)?) else {
        return Err("cannot load a certificate: a file has another part than it had".to_owned());
    };
    Ok(certificates::pair(chain.to_vec(), secret))
}

/// What a value of a directive stands for.
fn item(named: &NamedCertificates, cache: Option<&RefCell<Cache>>, value: &Secret, kind: Kind) -> Result<Item, String> {
    if let Some(text) = data(value) {
        return parse(named, text, kind).map_err(|error| failed(named, value, kind, &error));
    }
    let path = path(named, value);
    let load = || {
        let text = read_file(&path, LARGEST).map(Secret::new);
        let text =
            text.map_err(|error| failed(named, value, kind, &format_args!("open() failed {}", describe(&error))))?;
        parse(named, text.expose(), kind).map_err(|error| failed(named, value, kind, &error))
    };
    match cache {
        Some(cache) => cache.borrow_mut().get(Key { kind, path: path.clone() }, clock::now(), || stamp(&path), load),
        None => load(),
    }
}

/// The text of a value that has no file.
fn data(value: &Secret) -> Option<&[u8]> {
    value.expose().strip_prefix(b"data:")
}

/// The file that a value names.
fn path(named: &NamedCertificates, value: &Secret) -> PathBuf {
    named.directory.join(OsStr::from_bytes(value.expose()))
}

fn parse(named: &NamedCertificates, text: &[u8], kind: Kind) -> Result<Item, FileError> {
    Ok(match kind {
        Kind::Chain => Item::Chain(certificates::read_chain(text)?.into()),
        Kind::Key => {
            let key = certificates::read_key(text, &named.passwords)?;
            Item::Key(certificates::signing_key(key)?)
        }
    })
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// A line for the error log, without what follows `data:`, which may be a key.
fn failed(named: &NamedCertificates, value: &Secret, kind: Kind, why: &dyn Display) -> String {
    let what = match kind {
        Kind::Chain => "certificate",
        Kind::Key => "certificate key",
    };
    if data(value).is_some() {
        return format!("cannot load {what} \"data:…\": {why}");
    }
    format!("cannot load {what} \"{}\": {why}", Escaped(path(named, value).as_os_str().as_bytes()))
}
