//! Private keys and passwords. They are read once, by the process that has the rights, and are in nothing that is recorded,
//! shown or logged.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Answer, Bundle, Source, keep, replay};

/// Bytes that no text shows, and that are overwritten when they are not needed any more.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes over the contents of a file.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// The bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The secret files that a configuration names, as they were read. A [`Bundle`] has everything else.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Secrets {
    files: BTreeMap<PathBuf, Answer<Secret>>,
}

impl Secrets {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn record(&mut self, path: &Path, read: impl FnOnce() -> io::Result<Secret>) -> io::Result<Secret> {
        replay(Some(self.files.entry(path.to_path_buf()).or_insert_with(|| keep(&read()))))
    }

    /// Them as bytes, for a descriptor that only another process of this program reads.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        // Room for all of it: a vector that grows leaves copies behind.
        let mut out =
            Zeroizing::new(Vec::with_capacity(self.files.iter().map(|(path, answer)| encoded(path, answer)).sum()));
        for (path, answer) in &self.files {
            put(&mut out, path.as_os_str().as_encoded_bytes());
            match answer {
                Ok(secret) => {
                    out.push(0);
                    put(&mut out, secret.expose());
                }
                Err((code, text)) => {
                    out.push(1);
                    out.extend_from_slice(&code.unwrap_or(0).to_le_bytes());
                    put(&mut out, text.as_bytes());
                }
            }
        }
        out
    }

    /// Reads what [`Secrets::encode`] has written.
    ///
    /// # Errors
    /// Something else has written it.
    pub fn decode(bytes: &[u8]) -> io::Result<Secrets> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not the secrets of a configuration");
        let mut rest = bytes;
        let mut files = BTreeMap::new();
        while !rest.is_empty() {
            let path = take(&mut rest).and_then(|path| std::str::from_utf8(path).ok()).ok_or_else(wrong)?;
            let kind = rest.split_off_first().ok_or_else(wrong)?;
            let answer = match kind {
                0 => Ok(Secret::new(take(&mut rest).ok_or_else(wrong)?.to_vec())),
                _ => {
                    let code = rest.split_off(..4).and_then(|code| code.try_into().ok()).ok_or_else(wrong)?;
                    let text = take(&mut rest).ok_or_else(wrong)?;
                    Err((
                        Some(i32::from_le_bytes(code)).filter(|code| *code != 0),
                        String::from_utf8_lossy(text).into(),
                    ))
                }
            };
            files.insert(PathBuf::from(path), answer);
        }
        Ok(Secrets { files })
    }
}

/// Bytes of an entry.
fn encoded(path: &Path, answer: &Answer<Secret>) -> usize {
    let rest = match answer {
        Ok(secret) => secret.expose().len(),
        Err((_, text)) => 4 + text.len(),
    };
    8 + path.as_os_str().len() + 1 + 8 + rest
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?);
    rest.split_off(..usize::try_from(length).ok()?)
}

/// The same configuration again: what was recorded of it, and its secrets.
pub struct Replay<'a> {
    /// Files, patterns and addresses.
    pub bundle: &'a Bundle,
    /// Secret files.
    pub secrets: &'a Secrets,
}

impl Source for Replay<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.bundle.read(path)
    }

    fn secret(&self, path: &Path) -> io::Result<Secret> {
        replay(self.secrets.files.get(path))
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        self.bundle.glob(pattern)
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<std::net::IpAddr>> {
        self.bundle.resolve(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FileSystem, Recorder};

    const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----";

    /// A recorder that was asked for a configuration, a key, and a key that does not exist; and the paths.
    fn recorded(directory: &Path) -> (Bundle, Secrets, [PathBuf; 3]) {
        let paths = ["n.conf", "key.pem", "missing.pem"].map(|name| directory.join(name));
        std::fs::write(&paths[0], "events {}").unwrap();
        std::fs::write(&paths[1], KEY).unwrap();
        let recorder = Recorder::new(FileSystem);
        recorder.read(&paths[0]).unwrap();
        assert_eq!(recorder.secret(&paths[1]).unwrap().expose(), KEY);
        assert_eq!(recorder.secret(&paths[2]).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&paths[1], "another key").unwrap();
        assert_eq!(recorder.secret(&paths[1]).unwrap().expose(), KEY, "one state of the file");
        let (bundle, secrets) = recorder.into_parts();
        (bundle, secrets, paths)
    }

    #[test]
    fn nothing_that_is_recorded_or_shown_has_a_secret() {
        let directory = tempfile::tempdir().unwrap();
        let (bundle, secrets, [_, key, _]) = recorded(directory.path());
        let json = serde_json::to_string(&bundle).unwrap();
        let shown = format!("{json} {bundle:?} {secrets:?}").replace(' ', "");
        let numbers = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        assert!(shown.contains(&numbers(b"events {}")) && shown.contains("key.pem"));
        assert!(!shown.contains(&numbers(KEY)) && !shown.contains("PRIVATE"));
        assert_eq!(bundle.secret(&key).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_process_gets_the_same_answers() {
        let directory = tempfile::tempdir().unwrap();
        let (bundle, secrets, [conf, key, missing]) = recorded(directory.path());
        let decoded = Secrets::decode(&secrets.encode()).unwrap();
        assert_eq!(decoded, secrets);
        let replay = Replay { bundle: &bundle, secrets: &decoded };
        assert_eq!(replay.read(&conf).unwrap(), b"events {}");
        assert_eq!(replay.secret(&key).unwrap().expose(), KEY);
        assert_eq!(replay.secret(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
        let bytes = secrets.encode();
        assert_eq!(bytes.len(), bytes.capacity(), "no copies are left behind");
        for end in 1..bytes.len() {
            let part = Secrets::decode(&bytes[..end]);
            assert!(part.is_err() || part.is_ok_and(|part| part.files.len() == 1), "{end}");
        }
    }
}
