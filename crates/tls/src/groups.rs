//! `ssl_ecdh_curve`: groups of the key exchange, as OpenSSL names them.

use rustls::NamedGroup;
use rustls::crypto::{SupportedKxGroup, aws_lc_rs::kx_group};

/// A group that can be negotiated.
pub type Group = &'static dyn SupportedKxGroup;

/// The name that OpenSSL gives a group, other names for it, and the group.
const GROUPS: &[(&str, &[&str], Group)] = &[
    ("X25519", &[], kx_group::X25519),
    ("prime256v1", &["P-256", "secp256r1"], kx_group::SECP256R1),
    ("secp384r1", &["P-384"], kx_group::SECP384R1),
    ("X25519MLKEM768", &[], kx_group::X25519MLKEM768),
    ("SecP256r1MLKEM768", &[], kx_group::SECP256R1MLKEM768),
    ("MLKEM768", &[], kx_group::MLKEM768),
    ("MLKEM1024", &[], kx_group::MLKEM1024),
];
/// Groups of OpenSSL that do not exist here.
const FOREIGN: &[&str] = &[
    "P-521",
    "secp521r1",
    "X448",
    "ffdhe2048",
    "ffdhe3072",
    "ffdhe4096",
    "ffdhe6144",
    "ffdhe8192",
    "MLKEM512",
    "SecP384r1MLKEM1024",
    "brainpoolP256r1",
    "brainpoolP384r1",
    "brainpoolP512r1",
    "secp224r1",
    "P-224",
    "secp256k1",
    "brainpoolP256r1tls13",
    "brainpoolP384r1tls13",
    "brainpoolP512r1tls13",
    "secp192r1",
    "prime192v1",
    "P-192",
    "sect571r1",
    "sect409r1",
    "sect283r1",
    "secp521r1",
];

/// What a list of groups stands for.
#[derive(Debug, Default)]
pub struct Selection {
    /// What can be negotiated, best first.
    pub groups: Vec<Group>,
    /// Names of groups that only OpenSSL has.
    pub left_out: Vec<String>,
}

/// Those that are offered without `ssl_ecdh_curve`.
pub fn auto() -> Vec<Group> {
    vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1]
}

/// Reads `auto`, or names with colons between them.
///
/// # Errors
/// A name that no group has.
pub fn select(list: &str) -> Result<Selection, String> {
    let mut selection = Selection::default();
    if list == "auto" {
        return Ok(Selection { groups: auto(), ..selection });
    }
    // OpenSSL 3.5 has marks for key shares, tuples and names that may be unknown.
    for name in list.split([':', '/']).map(|name| name.trim_start_matches('*')) {
        let (name, optional) =
            name.strip_prefix('?').map_or((name, false), |name| (name.trim_start_matches('*'), true));
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if let Some((_, _, group)) =
            GROUPS.iter().find(|(first, others, _)| is(first) || others.iter().any(|it| is(it)))
        {
            if !selection.groups.iter().any(|known| known.name() == group.name()) {
                selection.groups.push(*group);
            }
        } else if optional || FOREIGN.iter().any(|known| is(known)) {
            selection.left_out.push(name.to_string());
        } else {
            return Err(name.to_string());
        }
    }
    Ok(selection)
}

/// How OpenSSL names a group.
pub fn name(group: NamedGroup) -> Option<&'static str> {
    GROUPS.iter().find(|(_, _, known)| known.name() == group).map(|(name, _, _)| *name)
}

/// How `$ssl_curves` names a group that a client offers: by its number if it does not exist here.
pub fn name_of_number(number: u16) -> String {
    name(NamedGroup::from(number)).map_or_else(|| format!("0x{number:04x}"), str::to_string)
}
