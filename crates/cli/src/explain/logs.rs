//! The logs of a configuration, and the lines in them that are about a request.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use balanza_config::{FileSystem, Options, outline, statements};
use balanza_recommend::format::{Escape, Format, Variable};
use balanza_recommend::line::{Splitter, Values, unescaped};
use balanza_recommend::{read, values};

/// Lines of the error log that are shown at most: the last ones.
const ERRORS: usize = 20;

/// The line for nginx.conf that a configuration without a request's id gets.
const ADVICE: &str = "\
log_format explain '$msec $request_id $connection $remote_addr \"$request\" $status $request_time '
                   '\"$upstream_addr\" \"$upstream_status\" \"$upstream_connect_time\" \"$upstream_header_time\" '
                   '\"$upstream_response_time\" \"$upstream_pick_reason\"';
access_log logs/explain.log explain;";

/// What can be searched.
pub struct Logs {
    pub access: Vec<AccessLog>,
    /// `error_log`: files.
    errors: Vec<PathBuf>,
}

/// A file, and how its lines may be written.
pub struct AccessLog {
    pub path: PathBuf,
    formats: Vec<Format>,
}

/// What a line says of a request.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub log: PathBuf,
    pub line: String,
    pub ended: Option<String>,
    pub client: Option<String>,
    pub request: Option<String>,
    pub status: Option<u16>,
    /// Microseconds.
    pub time: Option<u64>,
    pub connection: Option<String>,
    /// Lists with one value for each attempt.
    pub servers: Option<String>,
    pub statuses: Option<String>,
    pub connects: Option<String>,
    pub headers: Option<String>,
    pub responses: Option<String>,
    pub reasons: Option<String>,
    pub probabilities: Option<String>,
}

impl Logs {
    /// The logs of a configuration; `given` take the place of its access logs.
    pub fn of(options: &Options, given: &[PathBuf]) -> anyhow::Result<Logs> {
        let written = outline(&FileSystem, options)
            .map_err(|problems| anyhow::anyhow!("{}", problems.first().map(ToString::to_string).unwrap_or_default()))?;
        let (statements, _) = statements(&FileSystem, options);
        let escape = |name: &str| match name {
            "json" => Escape::Json,
            "none" => Escape::None,
            _ => Escape::Default,
        };
        let formats: Vec<(String, Format)> = written
            .formats
            .iter()
            .map(|format| (format.name.clone(), Format::of_any_log(&format.text, escape(&format.escape))))
            .filter(|(_, format)| format.has(Variable::RequestId))
            .collect();
        let is_file = |path: &&str| !path.contains('$') && !path.contains(':') && !["off", "stderr"].contains(path);
        let paths = |name: &'static str| {
            let of_directive = statements.iter().filter(move |words| words.first().is_some_and(|word| word == name));
            of_directive.filter_map(|words| Some((words.get(1).map(String::as_str).filter(is_file)?, words)))
        };
        let mut access: Vec<AccessLog> = Vec::new();
        for (path, words) in paths("access_log") {
            let Some((_, format)) = words.get(2).and_then(|name| formats.iter().find(|(known, _)| known == name))
            else {
                continue;
            };
            let path = options.prefix.join(path);
            match access.iter_mut().find(|log| log.path == path) {
                Some(log) => log.formats.push(format.clone()),
                None => access.push(AccessLog { path, formats: vec![format.clone()] }),
            }
        }
        if !given.is_empty() {
            let all: Vec<Format> = formats.into_iter().map(|(_, format)| format).collect();
            access = given.iter().map(|path| AccessLog { path: path.clone(), formats: all.clone() }).collect();
        }
        if access.iter().all(|log| log.formats.is_empty()) {
            let file = options.prefix.join(&options.file);
            bail!("no access log of {} has $request_id in a file; log with this in http:\n{ADVICE}", file.display());
        }
        let mut errors: Vec<PathBuf> = paths("error_log").map(|(path, _)| options.prefix.join(path)).collect();
        if errors.is_empty() {
            errors.push(options.prefix.join("logs/error.log"));
        }
        errors.sort();
        errors.dedup();
        Ok(Logs { access, errors })
    }

    /// The last request of this id.
    pub fn find(&self, id: &str) -> anyhow::Result<Option<Record>> {
        let mut found = None;
        for log in &self.access {
            let splitters: Vec<Splitter> = log.formats.iter().map(Splitter::new).collect();
            let failed = || log.path.display().to_string();
            for line in read::lines_with(&log.path, id.as_bytes()).with_context(failed)? {
                let mut values = Values::default();
                for (splitter, format) in splitters.iter().zip(&log.formats) {
                    if splitter.split(&line, &mut values) && values.get(Variable::RequestId) == Some(id.as_bytes()) {
                        found = Some(record(&log.path, &line, &values, format.escape()));
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The last lines of the error logs about a connection.
    pub fn errors(&self, connection: &str) -> Vec<String> {
        let mark = format!(": *{connection} ");
        let found = self.errors.iter().filter_map(|path| read::lines_with(path, mark.as_bytes()).ok()).flatten();
        let mut found: Vec<String> = found.map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
        found.drain(..found.len().saturating_sub(ERRORS));
        found
    }
}

fn record(log: &Path, line: &[u8], said: &Values<'_>, escape: Escape) -> Record {
    let text = |variable| {
        let value = said.get(variable)?;
        Some(String::from_utf8_lossy(&unescaped(value, escape)).into_owned())
    };
    let ended = [Variable::TimeIso8601, Variable::TimeLocal, Variable::Msec].into_iter().find_map(text);
    let request = text(Variable::Request).or_else(|| {
        Some(format!("{} {}", text(Variable::RequestMethod)?, text(Variable::RequestUri).or(text(Variable::Uri))?))
    });
    Record {
        log: log.to_path_buf(),
        line: String::from_utf8_lossy(line).into_owned(),
        ended,
        client: text(Variable::RemoteAddr),
        request,
        status: text(Variable::Status).and_then(|status| status.parse().ok()),
        time: said.get(Variable::RequestTime).and_then(values::micros),
        connection: text(Variable::Connection),
        servers: text(Variable::UpstreamAddr),
        statuses: text(Variable::UpstreamStatus),
        connects: text(Variable::UpstreamConnectTime),
        headers: text(Variable::UpstreamHeaderTime),
        responses: text(Variable::UpstreamResponseTime),
        reasons: text(Variable::UpstreamPickReason),
        probabilities: text(Variable::UpstreamChoiceProbability),
    }
}
