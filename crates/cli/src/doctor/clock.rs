//! Whether the clock is right: certificates, cookies and logs depend on it.

use super::finding::Finding;

/// What the machine says of its clock.
#[derive(Debug, Default)]
pub struct Sources {
    /// There is the file that systemd-timesyncd makes once the clock is synchronised.
    pub timesyncd: bool,
    /// The answer of `timedatectl show`.
    pub timedatectl: Option<String>,
    /// The answer of `chronyc tracking`.
    pub chrony: Option<String>,
}

/// Whether a time service keeps the clock right.
pub fn synchronised(sources: &Sources) -> Finding {
    const CHECK: &str = "clock";
    let line = |text: &Option<String>, start: &str| -> Option<String> {
        text.as_ref()?.lines().find_map(|line| line.strip_prefix(start)).map(|value| value.trim().to_string())
    };
    let chrony = line(&sources.chrony, "Leap status").map(|value| value.contains("Normal"));
    let kernel = line(&sources.timedatectl, "NTPSynchronized=").map(|value| value == "yes");
    if sources.timesyncd || chrony == Some(true) || kernel == Some(true) {
        return Finding::fine(CHECK, "synchronised");
    }
    if chrony.is_none() && kernel.is_none() {
        return Finding::unknown(
            CHECK,
            "neither timedatectl nor chronyc answers; in a container the host's clock counts",
        );
    }
    Finding::warning(CHECK, "not synchronised: certificates and logs depend on it", "timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use super::super::finding::State::{Fine, Unknown, Warning};
    use super::*;

    #[test]
    fn one_source_is_enough() {
        let of = |timedatectl: Option<&str>, chrony: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_string);
            synchronised(&Sources { timesyncd: false, timedatectl: text(timedatectl), chrony: text(chrony) }).state
        };
        assert_eq!(of(None, None), Unknown);
        assert_eq!(of(Some("NTP=yes\nNTPSynchronized=yes\n"), None), Fine);
        assert_eq!(of(Some("NTPSynchronized=no\n"), None), Warning);
        assert_eq!(of(Some("NTPSynchronized=no\n"), Some("Leap status     : Normal\n")), Fine);
        assert_eq!(of(None, Some("Leap status     : Not synchronised\n")), Warning);
        assert_eq!(synchronised(&Sources { timesyncd: true, ..Sources::default() }).state, Fine);
    }
}
