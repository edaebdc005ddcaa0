//! `ssl_ciphers`: OpenSSL's lists of cipher suites, over the suites that exist here.
//!
//! As in OpenSSL, a list chooses among the suites of TLS 1.2 and does not touch those of TLS 1.3.

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite as suite;

/// What OpenSSL's words for groups of suites say of a suite.
struct Suite {
    name: &'static str,
    tags: &'static [&'static str],
    bits: u16,
    suite: SupportedCipherSuite,
}

/// The suites of TLS 1.2, in OpenSSL's order.
const SUITES: [Suite; 6] = [
    Suite {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        tags: &["aECDSA", "ECDSA", "AES256", "AES", "AESGCM", "SHA384"],
        bits: 256,
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    },
    Suite {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        tags: &["aRSA", "AES256", "AES", "AESGCM", "SHA384"],
        bits: 256,
        suite: suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    },
    Suite {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        tags: &["aECDSA", "ECDSA", "CHACHA20"],
        bits: 256,
        suite: suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    },
    Suite {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        tags: &["aRSA", "CHACHA20"],
        bits: 256,
        suite: suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    },
    Suite {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        tags: &["aECDSA", "ECDSA", "AES128", "AES", "AESGCM", "SHA256"],
        bits: 128,
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    },
    Suite {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        tags: &["aRSA", "AES128", "AES", "AESGCM", "SHA256"],
        bits: 128,
        suite: suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    },
];
/// Words that are true of all of them.
const ALL: [&str; 9] = ["ALL", "DEFAULT", "HIGH", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH", "ECDH"];

/// The suites of TLS 1.3, in OpenSSL's order.
const SUITES_TLS13: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
];

/// What a list stands for.
#[derive(Debug, Default, PartialEq)]
pub struct Selection {
    /// The suites of TLS 1.2, best first.
    pub suites: Vec<SupportedCipherSuite>,
    /// Names of suites that do not exist here; OpenSSL may have them.
    pub left_out: Vec<String>,
}

impl Suite {
    /// Whether one of OpenSSL's words, or several with `+` between them, is true of it.
    fn is(&self, words: &str) -> bool {
        words.split('+').all(|word| self.name == word || self.tags.contains(&word) || ALL.contains(&word))
    }
}

/// Reads a list: names and words with colons between them, `!` and `-` to leave out, `+` to put last.
///
/// # Errors
/// A command after `@` that OpenSSL does not know.
pub fn select(list: &str) -> Result<Selection, String> {
    let mut selection = Selection::default();
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut killed: Vec<&str> = Vec::new();
    for item in list.split([':', ',', ';', ' ']).filter(|item| !item.is_empty()) {
        match item.split_at_checked(1) {
            Some(("!", words)) => {
                chosen.retain(|suite| !suite.is(words));
                killed.extend(SUITES.iter().filter(|suite| suite.is(words)).map(|suite| suite.name));
            }
            Some(("-", words)) => chosen.retain(|suite| !suite.is(words)),
            Some(("+", words)) => {
                let (last, first): (Vec<_>, Vec<_>) = chosen.iter().partition(|suite| suite.is(words));
                chosen = [first, last].concat();
            }
            Some(("@", "STRENGTH")) => chosen.sort_by_key(|suite| std::cmp::Reverse(suite.bits)),
            Some(("@", level)) if level.strip_prefix("SECLEVEL=").is_some_and(|it| matches!(it, "0" | "1" | "2")) => {}
            // 192 bits: only the suites with 256, and ECDHE is as strong as its group.
            Some(("@", level)) if level.strip_prefix("SECLEVEL=").is_some_and(|it| matches!(it, "3" | "4" | "5")) => {
                chosen.retain(|suite| suite.bits == 256);
            }
            Some(("@", command)) => return Err(format!("@{command}")),
            _ => {
                let mut any = false;
                for suite in SUITES.iter().filter(|suite| suite.is(item)) {
                    any = true;
                    if !killed.contains(&suite.name) && !chosen.iter().any(|known| known.name == suite.name) {
                        chosen.push(suite);
                    }
                }
                // Those of TLS 1.3 are chosen by another directive, and OpenSSL ignores them here.
                if !any && !SUITES_TLS13.iter().any(|(name, _)| *name == item) {
                    selection.left_out.push(item.to_string());
                }
            }
        }
    }
    selection.suites = chosen.iter().map(|suite| suite.suite).collect();
    Ok(selection)
}

/// All suites of TLS 1.3, in OpenSSL's order.
pub fn tls13() -> Vec<SupportedCipherSuite> {
    SUITES_TLS13.iter().map(|(_, suite)| *suite).collect()
}

/// Reads a list of suites of TLS 1.3 (`ssl_conf_command Ciphersuites`).
///
/// # Errors
/// A name that no suite of TLS 1.3 has here.
pub fn select_tls13(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let named = |name: &str| {
        let known = SUITES_TLS13.iter().find(|(known, _)| *known == name);
        known.map(|(_, suite)| *suite).ok_or_else(|| name.to_string())
    };
    list.split(':').filter(|name| !name.is_empty()).map(named).collect()
}

/// How OpenSSL names a suite.
pub fn name(suite: SupportedCipherSuite) -> &'static str {
    let old = SUITES.iter().map(|known| (known.name, known.suite));
    old.chain(SUITES_TLS13).find(|(_, known)| *known == suite).map_or("unknown", |(name, _)| name)
}

/// How `$ssl_ciphers` names a suite that a client offers: by its number if OpenSSL would not know it.
pub fn name_of_number(number: u16) -> String {
    let old = SUITES.iter().map(|known| (known.name, known.suite));
    let known = old.chain(SUITES_TLS13).find(|(_, known)| u16::from(known.suite()) == number);
    known.map_or_else(|| format!("0x{number:04x}"), |(name, _)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        select(list).unwrap().suites.into_iter().map(name).collect()
    }

    #[test]
    fn words_choose_suites() {
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 6);
        assert_eq!(names("ALL:!AES"), ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"]);
        assert_eq!(names("ECDHE+AESGCM+aRSA"), ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:AES256+aRSA"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(names("!AES128:ALL:!ECDSA:+AES"), ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES256-GCM-SHA384"]);
        assert_eq!(
            names("aRSA:-AES:AES128+aRSA:@STRENGTH"),
            ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(names("ALL:@SECLEVEL=3").len(), 4);
        assert_eq!(select("@WEAK"), Err("@WEAK".into()));
        assert_eq!(names("ECDHE-RSA-AES256-SHA:RC4:3DES"), [""; 0]);
    }

    #[test]
    fn the_lists_of_mozilla_keep_their_order() {
        let intermediate = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
                            ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
                            DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305";
        let selection = select(intermediate).unwrap();
        let expected: Vec<&str> = intermediate.split(':').take(6).collect();
        assert_eq!(selection.suites.iter().map(|suite| name(*suite)).collect::<Vec<_>>(), expected);
        assert_eq!(selection.left_out, intermediate.split(':').skip(6).collect::<Vec<_>>());
    }

    #[test]
    fn suites_of_tls13_are_chosen_apart() {
        assert_eq!(select_tls13("TLS_AES_128_GCM_SHA256").unwrap(), [suite::TLS13_AES_128_GCM_SHA256]);
        assert_eq!(select_tls13("TLS_AES_128_CCM_SHA256"), Err("TLS_AES_128_CCM_SHA256".into()));
        assert_eq!(select("TLS_AES_128_GCM_SHA256").unwrap(), Selection::default());
        assert_eq!(name_of_number(0x1301), "TLS_AES_128_GCM_SHA256");
        assert_eq!(name_of_number(0x0a0a), "0x0a0a");
    }
}
