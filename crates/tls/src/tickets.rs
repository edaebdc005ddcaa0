//! Session tickets: what a client keeps of a session, encrypted with a key that only this server has.
//!
//! A ticket is good for one [`Scope`] only: a session that began under other certificates, or with other rules for the
//! client's, cannot be resumed elsewhere.

use std::sync::{Arc, LazyLock, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::rand;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

/// What a session belongs to, as a digest.
pub type Scope = [u8; 32];

/// The scope of a context that is described by these parts.
pub fn scope<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Scope {
    let mut context = digest::Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}

const NAME_LEN: usize = 16;

/// A key for tickets.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(…)")
    }
}

impl TicketKey {
    /// The key of a file of `ssl_session_ticket_key`: 48 or 80 random bytes.
    ///
    /// # Errors
    /// Another length.
    pub fn from_file(bytes: &[u8]) -> Result<TicketKey, String> {
        if bytes.len() != 48 && bytes.len() != 80 {
            return Err(format!("must be 48 or 80 bytes, and has {}", bytes.len()));
        }
        let hash = digest::digest(&SHA256, &bytes[NAME_LEN..]);
        TicketKey::of(bytes[..NAME_LEN].try_into().unwrap_or_default(), hash.as_ref())
            .ok_or_else(|| "cannot be used as a key".into())
    }

    fn random() -> Option<TicketKey> {
        let mut bytes = Zeroizing::new([0; NAME_LEN + 32]);
        rand::fill(&mut *bytes).ok()?;
        TicketKey::of(bytes[..NAME_LEN].try_into().ok()?, &bytes[NAME_LEN..])
    }

    fn of(name: [u8; NAME_LEN], key: &[u8]) -> Option<TicketKey> {
        Some(TicketKey { name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?) })
    }

    /// Name, nonce, encrypted session and its tag.
    fn seal(&self, scope: &Scope, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let (_, sealed) = ticket.split_at_mut(NAME_LEN + NONCE_LEN);
        let tag =
            self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(scope), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, scope: &Scope, ticket: &[u8]) -> Option<Vec<u8>> {
        let sealed = ticket.strip_prefix(&self.name)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut plain = sealed.to_vec();
        let length =
            self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(scope), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

/// Random keys of the process, replaced after some time.
struct Rotation {
    current: TicketKey,
    previous: Option<TicketKey>,
    /// When `current` is replaced, in seconds since 1970.
    ends: u64,
}

/// How long a random key encrypts; it decrypts for as long again.
const ROTATION_SECONDS: u64 = 3600;

/// The random keys: one set for the process, so that they outlive a reload.
static RANDOM: LazyLock<RwLock<Option<Rotation>>> = LazyLock::new(RwLock::default);

/// Uses the random keys as they are now.
fn with_random<T>(act: impl FnOnce(&Rotation) -> Option<T>) -> Option<T> {
    let now = UnixTime::now().as_secs();
    {
        let keys = RANDOM.read().ok()?;
        if let Some(keys) = keys.as_ref().filter(|keys| now < keys.ends) {
            return act(keys);
        }
    }
    let mut keys = RANDOM.write().ok()?;
    if keys.as_ref().is_none_or(|keys| now >= keys.ends) {
        let fresh = TicketKey::random()?;
        // One that ended long ago decrypts nothing any more.
        let previous = keys.take().filter(|old| now < old.ends + ROTATION_SECONDS).map(|old| old.current);
        *keys = Some(Rotation { current: fresh, previous, ends: now + ROTATION_SECONDS });
    }
    keys.as_ref().and_then(act)
}

/// Makes and reads the tickets of a context.
#[derive(Debug)]
pub struct Ticketer {
    scope: Scope,
    /// `ssl_session_timeout`, in seconds.
    lifetime: u32,
    /// Keys from files: the first encrypts. Without any, random keys of the process are used.
    keys: Arc<[TicketKey]>,
}

impl Ticketer {
    /// Tickets of this scope that are good for so long.
    pub fn new(scope: Scope, lifetime: u32, keys: Arc<[TicketKey]>) -> Ticketer {
        Ticketer { scope, lifetime, keys }
    }

    /// When the ticket ends goes into it: keys of files do not change by themselves.
    fn ends(&self) -> u64 {
        UnixTime::now().as_secs() + u64::from(self.lifetime)
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(8 + session.len()));
        plain.extend_from_slice(&self.ends().to_le_bytes());
        plain.extend_from_slice(session);
        match self.keys.first() {
            Some(key) => key.seal(&self.scope, &plain),
            None => with_random(|keys| keys.current.seal(&self.scope, &plain)),
        }
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let open = |key: &TicketKey| key.open(&self.scope, ticket);
        let plain = Zeroizing::new(if self.keys.is_empty() {
            with_random(|keys| open(&keys.current).or_else(|| keys.previous.as_ref().and_then(open)))?
        } else {
            self.keys.iter().find_map(open)?
        });
        let (ends, session) = plain.split_first_chunk::<8>()?;
        (UnixTime::now().as_secs() < u64::from_le_bytes(*ends)).then(|| session.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticketer(scope: Scope, lifetime: u32, keys: Vec<TicketKey>) -> Ticketer {
        Ticketer::new(scope, lifetime, keys.into())
    }

    #[test]
    fn a_ticket_is_good_in_its_scope_only() {
        let (one, two) = (scope([b"ab".as_slice(), b"c"]), scope([b"a".as_slice(), b"bc"]));
        assert_ne!(one, two);
        let ticket = ticketer(one, 60, Vec::new()).encrypt(b"session").unwrap();
        assert_eq!(ticketer(one, 60, Vec::new()).decrypt(&ticket).unwrap(), b"session");
        assert_eq!(ticketer(two, 60, Vec::new()).decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[at] ^= 1;
            assert_eq!(ticketer(one, 60, Vec::new()).decrypt(&forged), None, "byte {at}");
            assert_eq!(ticketer(one, 60, Vec::new()).decrypt(&ticket[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_ticket_ends() {
        let ended = ticketer([1; 32], 0, Vec::new());
        let ticket = ended.encrypt(b"session").unwrap();
        assert_eq!(ended.decrypt(&ticket), None);
    }

    #[test]
    fn keys_of_files_rotate() {
        let key = |byte: u8| TicketKey::from_file(&[byte; 48]).unwrap();
        let old = ticketer([1; 32], 60, vec![key(1)]).encrypt(b"session").unwrap();
        assert_eq!(ticketer([1; 32], 60, vec![key(2), key(1)]).decrypt(&old).unwrap(), b"session");
        assert_eq!(ticketer([1; 32], 60, vec![key(2)]).decrypt(&old), None);
        assert_eq!(ticketer([1; 32], 60, Vec::new()).decrypt(&old), None);
        assert!(TicketKey::from_file(&[0; 80]).is_ok());
        assert!(TicketKey::from_file(&[0; 47]).unwrap_err().contains("47"));
    }
}
