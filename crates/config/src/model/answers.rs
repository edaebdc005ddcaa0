//! What decides about single responses: `expires`, listings of directories, ranges.

use std::time::Duration;

use crate::template::Template;
use crate::values;

/// How a location answers, beyond its content.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// `expires`; `None` for `off`.
    pub expires: Option<ExpiresRule>,
    /// `max_ranges`: a request for more gets the whole; 0 for no ranges at all.
    pub max_ranges: usize,
    /// `chunked_transfer_encoding` (on).
    pub chunked: bool,
    /// `msie_refresh` (off).
    pub msie_refresh: bool,
    /// `msie_padding` (on).
    pub msie_padding: bool,
    /// `autoindex…`.
    pub autoindex: Autoindex,
    /// `random_index` (off).
    pub random_index: bool,
}

/// `expires`.
#[derive(Debug, Clone)]
pub enum ExpiresRule {
    /// Without variables.
    Fixed(Expires),
    /// With variables: read for each response.
    Dynamic {
        /// The time.
        value: Template,
        /// `modified`.
        modified: bool,
    },
}

/// When a response expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expires {
    /// `off`: nothing is said.
    Off,
    /// `epoch`: it has expired.
    Epoch,
    /// `max`: never.
    Max,
    /// So many seconds after the request.
    After(i64),
    /// `modified`: so many seconds after the last change.
    Modified(i64),
    /// `@`: at this time of the day, in seconds after midnight.
    Daily(u64),
}

impl Expires {
    /// Reads the argument of `expires`.
    ///
    /// # Errors
    /// What is wrong with it, in NGINX's words.
    pub fn read(text: &[u8], modified: bool) -> Result<Expires, &'static str> {
        match text {
            b"epoch" if !modified => return Ok(Expires::Epoch),
            b"max" if !modified => return Ok(Expires::Max),
            b"off" if !modified => return Ok(Expires::Off),
            _ => {}
        }
        let seconds = |text| values::seconds(text).ok_or("invalid value");
        let signed = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let (text, negative) = match text {
            [b'@', _rest @ ..] if modified => return Err("daily time cannot be used with \"modified\" parameter"),
            [b'@', rest @ ..] => {
                let time = seconds(rest)?.as_secs();
                let fits = time <= 24 * 60 * 60;
                return if fits {
                    Ok(Expires::Daily(time))
                } else {
                    Err("daily time value must be less than 24 hours")
                };
            }
            [b'+', rest @ ..] => (rest, false),
            [b'-', rest @ ..] => (rest, true),
            _ => (text, false),
        };
        let time = signed(seconds(text)?);
        let time = if negative { -time } else { time };
        Ok(if modified { Expires::Modified(time) } else { Expires::After(time) })
    }
}

/// Listings of directories.
#[derive(Debug, Clone, Copy, Default)]
pub struct Autoindex {
    /// `autoindex` (off).
    pub enabled: bool,
    /// `autoindex_exact_size` (on).
    pub exact_size: bool,
    /// `autoindex_localtime` (off).
    pub localtime: bool,
    /// `autoindex_format` (html).
    pub format: ListingFormat,
}

/// `autoindex_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum ListingFormat {
    #[default]
    Html,
    Json,
    Jsonp,
    Xml,
}
