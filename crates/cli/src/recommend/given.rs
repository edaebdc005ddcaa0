//! What the configuration says: formats of logs, and the upstream that the log is of.

use std::collections::HashMap;

use anyhow::Context;
use balanza_config::{FileSystem, OutlineUpstream, nearest, outline};
use balanza_recommend::block::{Block, Directive};
use balanza_recommend::format::Escape;
use balanza_recommend::read::{Candidate, Input, servers};
use balanza_recommend::setting::Current;

use super::Options;

/// What was given beside the logs.
pub struct Given {
    pub formats: Vec<Candidate>,
    blocks: Vec<Block>,
    /// The name of one of them.
    upstream: Option<String>,
}

fn escape(name: &str) -> Escape {
    [("json", Escape::Json), ("none", Escape::None)]
        .into_iter()
        .find(|(known, _)| *known == name)
        .map_or(Escape::Default, |(_, escape)| escape)
}

impl Given {
    pub fn new(options: &Options) -> anyhow::Result<Given> {
        let mut given = Given { formats: Vec::new(), blocks: Vec::new(), upstream: options.upstream.clone() };
        if let Some(file) = &options.file {
            let place = std::path::absolute(file)?;
            let prefix = place.parent().map(std::path::Path::to_path_buf).unwrap_or_default();
            let outline = outline(&FileSystem, &balanza_config::Options::new(prefix, &place)).map_err(|problems| {
                let first = problems.first().map(ToString::to_string).unwrap_or_default();
                anyhow::anyhow!("{}", first.trim_start_matches("balanza: "))
            })?;
            let format = |format: &balanza_config::OutlineFormat| Candidate {
                name: format.name.clone(),
                text: format.text.clone(),
                escape: escape(&format.escape),
            };
            given.formats = outline.formats.iter().map(format).collect();
            given.blocks = outline.upstreams.iter().map(block).collect::<anyhow::Result<_>>()?;
        }
        if let Some(text) = &options.format {
            given.formats =
                if text.contains('$') {
                    let escape = match options.escape {
                        super::Escape::Default => Escape::Default,
                        super::Escape::Json => Escape::Json,
                        super::Escape::None => Escape::None,
                    };
                    vec![Candidate { name: "of --format".into(), text: text.clone(), escape }]
                } else {
                    let named = given.formats.iter().find(|format| format.name == *text).cloned();
                    vec![named.with_context(|| {
                        format!("--format {text}: the configuration has no log_format of this name")
                    })?]
                };
        }
        Ok(given)
    }

    /// The upstream that the log is of: the named one, or the one whose servers have most of the first lines.
    pub fn block(&self, input: &Input) -> anyhow::Result<Option<Block>> {
        if let Some(name) = &self.upstream {
            let found = self.blocks.iter().find(|block| block.name == *name);
            return found.cloned().map(Some).with_context(|| {
                let names: Vec<&str> = self.blocks.iter().map(|block| block.name.as_str()).collect();
                let near = nearest(name, names.iter().copied());
                let hint = near.map_or_else(|| names.join(", "), |near| format!("did you mean {near}?"));
                format!("the configuration has no upstream \"{name}\": {hint}")
            });
        }
        if self.blocks.is_empty() {
            return Ok(None);
        }
        let seen: HashMap<String, u64> = servers(input)?;
        let requests = |block: &&Block| -> u64 {
            seen.iter().filter(|(address, _)| block.has(address)).map(|(_, count)| *count).sum()
        };
        let best = self.blocks.iter().max_by_key(requests).filter(|block| requests(block) > 0);
        if best.is_none() {
            eprintln!(
                "balanza: no upstream of the configuration has servers of the log by their addresses, so that the algorithm in \
                 operation is not known"
            );
        }
        Ok(best.cloned())
    }
}

fn block(upstream: &OutlineUpstream) -> anyhow::Result<Block> {
    let file = upstream.file.display().to_string();
    let directive = |directive: &balanza_config::OutlineDirective| Directive {
        words: directive.words.clone(),
        place: directive.place.clone(),
    };
    Ok(Block {
        name: upstream.name.clone(),
        text: std::fs::read_to_string(&upstream.file).with_context(|| file.clone())?,
        file,
        head: upstream.head.clone(),
        directives: upstream.directives.iter().map(directive).collect(),
    })
}

/// The algorithm that `--current` says was in operation.
pub fn stated(text: &str) -> anyhow::Result<Current> {
    balanza_simulator::algorithm(text)?;
    Ok(Current { algorithm: text.to_string(), assumed: false, servers: Vec::new() })
}
