//! Files of a log: plain or compressed by gzip, read once from begin to end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::bufread::MultiGzDecoder;

use crate::Error;
use crate::format::{BUILT_IN, COMMON, Escape, Format, Lacking, Needs};
use crate::line::{Splitter, Values};
use crate::log::{KeyOf, Log, Reader};

const BUFFER: usize = 1 << 20;
/// A format is chosen by so many lines.
const TRIED: usize = 200;

/// A `log_format` that lines may have.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its text, with the strings joined.
    pub text: String,
    /// How values are escaped.
    pub escape: Escape,
}

/// What is read, and how.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The files, `-` for standard input.
    pub files: Vec<PathBuf>,
    /// Formats that the lines may have; the one that fits best is used. Without any, the built-in one or JSON.
    pub formats: Vec<Candidate>,
    /// What the key of a request is.
    pub key: KeyOf,
    /// The servers that count; all if it is empty.
    pub only: Vec<String>,
}

/// Counts the bytes that come from the disk.
struct Counted<'a, R>(R, &'a AtomicU64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// Opens a log: a file, also one that is compressed by gzip, or `-` for standard input. `done` counts bytes from the disk.
fn open<'a>(path: &Path, done: &'a AtomicU64) -> io::Result<Box<dyn BufRead + 'a>> {
    let raw: Box<dyn Read> = if path.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let mut reader = BufReader::with_capacity(BUFFER, Counted(raw, done));
    if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(reader))));
    }
    Ok(Box::new(reader))
}

/// The lines of a log that contain this, without their ends.
///
/// # Errors
/// The log cannot be read.
pub fn lines_with(path: &Path, wanted: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let done = AtomicU64::new(0);
    let mut file = open(path, &done)?;
    let finder = memchr::memmem::Finder::new(wanted);
    let (mut line, mut found) = (Vec::new(), Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        if finder.find(&line).is_some() {
            found.push(line.trim_ascii_end().to_vec());
        }
        line.clear();
    }
    Ok(found)
}

/// Bytes of all files, as far as that is known.
pub fn size(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|data| data.len()).sum()
}

/// The servers of the first lines of a log, with their requests. Standard input is not looked at, as it can be read once.
///
/// # Errors
/// As those of [`read`].
pub fn servers(input: &Input) -> Result<HashMap<String, u64>, Error> {
    let mut counts = HashMap::new();
    for path in input.files.iter().filter(|path| path.as_os_str() != "-") {
        let failed = |error| Error::File { file: path.display().to_string(), error };
        let done = AtomicU64::new(0);
        let lines = open(path, &done).map_err(failed)?.split(b'\n').take(10_000).collect::<io::Result<Vec<_>>>();
        let lines: Vec<Vec<u8>> =
            lines.map_err(failed)?.into_iter().map(|line| line.trim_ascii_end().to_vec()).collect();
        let lines: Vec<Vec<u8>> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            continue;
        }
        let log = start::<Reader>(input, &lines)?.finish();
        for attempt in &log.attempts {
            *counts.entry(log.servers[usize::from(attempt.server)].clone()).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Reads a log. `done` counts bytes.
///
/// # Errors
/// A file that cannot be read; no format that fits; no request in it.
pub fn read(input: &Input, done: &AtomicU64) -> Result<Log, Error> {
    let (reader, lines) = through::<Reader>(input, done)?;
    let log = reader.finish();
    check_fits(log.strange, lines)?;
    if log.attempts.is_empty() {
        return Err(Error::NoServers);
    }
    Ok(log)
}

/// Reads the lines of a log in one format.
pub(crate) trait LineReader {
    /// What the format must have.
    const NEEDS: Needs;

    /// One that has read nothing.
    fn begin(format: &Format, input: &Input) -> Self;

    /// Reads a line.
    fn take(&mut self, line: &[u8]);
}

impl LineReader for Reader {
    const NEEDS: Needs = Needs::Servers;

    fn begin(format: &Format, input: &Input) -> Reader {
        Reader::new(format, input.key, &input.only)
    }

    fn take(&mut self, line: &[u8]) {
        self.line(line);
    }
}

/// A log most of whose lines have another format is refused.
pub(crate) fn check_fits(strange: u64, lines: u64) -> Result<(), Error> {
    if strange * 2 > lines { Err(Error::Strange { strange, lines }) } else { Ok(()) }
}

/// Reads all lines of a log in the format that fits the first of them. Returns also their number.
pub(crate) fn through<R: LineReader>(input: &Input, done: &AtomicU64) -> Result<(R, u64), Error> {
    let mut reader: Option<R> = None;
    let mut first: Vec<Vec<u8>> = Vec::new();
    let mut lines = 0u64;
    for path in &input.files {
        let failed = |error| Error::File { file: path.display().to_string(), error };
        let mut file = open(path, done).map_err(failed)?;
        let mut line = Vec::with_capacity(4_096);
        loop {
            line.clear();
            if file.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            lines += 1;
            match &mut reader {
                Some(reader) => reader.take(line),
                None => {
                    first.push(line.to_vec());
                    if first.len() == TRIED {
                        reader = Some(start(input, &first)?);
                    }
                }
            }
        }
    }
    match reader {
        Some(reader) => Ok((reader, lines)),
        None if first.is_empty() => Err(Error::Empty),
        None => Ok((start(input, &first)?, lines)),
    }
}

/// The format that fits the first lines, with these lines read.
fn start<R: LineReader>(input: &Input, first: &[Vec<u8>]) -> Result<R, Error> {
    let format = choose(&input.formats, first, R::NEEDS)?;
    let mut reader = R::begin(&format, input);
    first.iter().for_each(|line| reader.take(line));
    Ok(reader)
}

/// The built-in formats, the most complete first.
fn built_in(needs: Needs) -> Vec<Candidate> {
    let candidate = |text: &str| Candidate { name: "built-in".into(), text: text.into(), escape: Escape::Default };
    match needs {
        Needs::Servers => vec![candidate(BUILT_IN)],
        Needs::Requests => vec![candidate(BUILT_IN), candidate(COMMON)],
    }
}

fn choose(formats: &[Candidate], lines: &[Vec<u8>], needs: Needs) -> Result<Format, Error> {
    let plain = built_in(needs);
    let candidates = if formats.is_empty() { &plain } else { formats };
    let fitting = |format: &Format| {
        let splitter = Splitter::new(format);
        let mut values = Values::default();
        lines.iter().filter(|line| splitter.split(line, &mut values)).count()
    };
    let mut lacking: Option<Lacking> = None;
    let mut best: Option<(usize, Format)> = None;
    for candidate in candidates {
        match Format::with(&candidate.text, candidate.escape, needs) {
            Ok(format) => {
                let count = fitting(&format);
                if best.as_ref().is_none_or(|(most, _)| count > *most) {
                    best = Some((count, format));
                }
            }
            Err(Lacking(what)) => {
                lacking.get_or_insert(Lacking(format!("log_format {}: {what}", candidate.name)));
            }
        }
    }
    // Objects whose members have the variables' names need no log_format.
    if best.as_ref().is_none_or(|(count, _)| *count * 2 <= lines.len())
        && lines.iter().all(|line| line.starts_with(b"{"))
    {
        let json = Format::json();
        let count = fitting(&json);
        let complete = lines.iter().any(|line| has_members(line, needs));
        if count * 2 > lines.len() && complete {
            return Ok(json);
        }
    }
    match best {
        Some((count, format)) if count * 2 > lines.len() => Ok(format),
        _ if lacking.is_some() => Err(Error::Format(lacking.unwrap_or_else(|| Lacking(String::new())))),
        _ => {
            let line = String::from_utf8_lossy(&lines[0]).chars().take(160).collect::<String>();
            Err(Error::Format(Lacking(format!(
                "the lines are not of {}, as this one: {line}\nGive the configuration (-c nginx.conf) or the text of the log_format (--format)",
                if formats.is_empty() { "the built-in format" } else { "the given format" }
            ))))
        }
    }
}

fn has_members(line: &[u8], needs: Needs) -> bool {
    let has = |name: &&[u8]| memchr::memmem::find(line, name).is_some();
    let values = match needs {
        Needs::Servers => [&b"upstream_addr"[..], b"upstream_response_time"].iter().all(has),
        Needs::Requests => [&b"request\""[..], b"request_uri\"", b"uri\""].iter().any(has),
    };
    values && [&b"msec"[..], b"time_iso8601", b"time_local"].iter().any(has)
}
