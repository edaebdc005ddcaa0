//! What is changed of upstreams' servers while they serve: by the program's host, and by files.

use std::sync::Arc;

use balanza_config::model::membership::{Change, ChangeError, Changed, Found, Protocol};
use balanza_config::model::{Level, UpstreamServer};

use super::State;
use crate::lists;
use crate::log::error::ErrorWriter;
use crate::servers::membership::{Membership, Shared, with_outside};

impl State {
    /// Makes changes of an upstream's servers, all or none, and writes its `state`.
    pub(super) fn change(
        &mut self,
        protocol: Protocol,
        upstream: &str,
        changes: Vec<Change>,
    ) -> Result<(), ChangeError> {
        let generation = Arc::clone(&self.generation);
        let shared = generation.upstream(protocol, upstream);
        let shared = shared.ok_or_else(|| ChangeError::NoUpstream(upstream.to_owned()))?;
        let mut changed = self.changed(shared);
        changes.into_iter().try_for_each(|change| changed.change(change))?;
        self.use_changed(shared, changed)?;
        if let Some(list) = shared.conf.list.as_ref().filter(|list| list.is_state)
            && let Err(error) = lists::write(&list.path, self.changed(shared).servers())
        {
            let message = format_args!(
                "the servers of upstream \"{upstream}\" cannot be kept in \"{}\": {error}",
                list.path.display()
            );
            ErrorWriter::new(&generation.config.core.error_log, &generation.logs).write(Level::Alert, message);
        }
        Ok(())
    }

    /// The servers that an upstream is configured with.
    pub(super) fn configured<'a>(&'a self, shared: &'a Shared) -> &'a [UpstreamServer] {
        let listed = self.listed.get(&(shared.protocol, shared.conf.name.clone()));
        listed.unwrap_or(&shared.conf.servers)
    }

    /// What was changed of the servers of an upstream.
    pub(super) fn changed(&self, shared: &Shared) -> Changed {
        let known = self.changes.get(&(shared.protocol, shared.conf.name.clone()));
        known.cloned().unwrap_or_else(|| Changed::new(self.configured(shared)))
    }

    /// Works out the servers of an upstream with these of its sources; none if it has them.
    pub(super) fn prepare_found(
        &mut self,
        shared: &Shared,
        found: &[Found],
    ) -> anyhow::Result<Option<Arc<Membership>>> {
        let own = self.changed(shared);
        let list = with_outside(own.servers(), &self.generation.outside(), shared.protocol, &shared.conf, found);
        if list == shared.membership().servers {
            return Ok(None);
        }
        shared.prepare(list, &mut self.servers).map(Some)
    }

    /// Keeps what an upstream uses of its sources, for changes, and for a process that begins while they are lost.
    pub(super) fn remember_found(&mut self, shared: &Shared, found: Vec<Found>) {
        let key = (shared.protocol, shared.conf.name.clone());
        let known = self.changes.get(&key);
        if known.map_or(found.is_empty(), |known| known.found() == found) {
            return;
        }
        let mut changed = self.changed(shared);
        changed.set_found(found);
        match changed.is_as_configured() {
            true => self.changes.remove(&key),
            false => self.changes.insert(key, changed),
        };
        self.tell_changes();
    }

    /// Uses the changed servers of an upstream.
    pub(super) fn use_changed(&mut self, shared: &Shared, changed: Changed) -> Result<(), ChangeError> {
        let generation = Arc::clone(&self.generation);
        // What the sources have now may be refused.
        let found = changed.found().to_vec();
        let list = with_outside(changed.servers(), &generation.outside(), shared.protocol, &shared.conf, &found);
        let balancing = shared.balancing(&changed).map_err(ChangeError::Refused)?;
        let membership = shared.prepare_with(list, balancing, &mut self.servers);
        shared.replace(membership.map_err(|error| ChangeError::Refused(format!("{error:#}")))?);
        let key = (shared.protocol, shared.conf.name.clone());
        match changed.is_as_configured() {
            true => self.changes.remove(&key),
            false => self.changes.insert(key, changed),
        };
        self.tell_workers(shared.protocol, &shared.conf.name);
        self.tell_changes();
        // Servers that were refused may be possible now.
        if generation.outside().found(shared.protocol, &shared.conf) != found {
            self.adopt_outside(shared.protocol, &shared.conf.name);
        }
        Ok(())
    }

    /// The file of an upstream's servers has changed. If it is wrong, they stay as they are.
    pub(super) fn adopt_list(&mut self, protocol: Protocol, upstream: &str, list: Result<Vec<UpstreamServer>, String>) {
        let generation = Arc::clone(&self.generation);
        let Some(shared) = generation.upstream(protocol, upstream) else { return };
        let Some(conf) = &shared.conf.list else { return };
        let key = (protocol, upstream.to_owned());
        let before = self.configured(shared).to_vec();
        let adopted = list.and_then(|servers| {
            let mut changed = self.changed(shared);
            if conf.is_state {
                if changed.servers() == servers {
                    return Ok(None);
                }
                changed.replace(servers);
            } else {
                let configured: Vec<UpstreamServer> =
                    shared.conf.servers[..conf.own].iter().cloned().chain(servers).collect();
                if configured == before {
                    return Ok(None);
                }
                changed.reconfigure(&configured);
                self.listed.insert(key.clone(), configured);
            }
            let count = changed.servers().len();
            self.use_changed(shared, changed).map(|()| Some(count)).map_err(|error| error.to_string())
        });
        let log = ErrorWriter::new(&generation.config.core.error_log, &generation.logs);
        let path = conf.path.display();
        match adopted {
            Ok(None) => {}
            Ok(Some(count)) => log.write(
                Level::Notice,
                format_args!("upstream \"{upstream}\" has {count} servers, because \"{path}\" has changed"),
            ),
            Err(problem) => {
                if !conf.is_state {
                    self.listed.insert(key, before);
                }
                log.write(
                    Level::Error,
                    format_args!("the servers of upstream \"{upstream}\" stay as they were, because \"{path}\" is wrong: {problem}"),
                );
            }
        }
    }
}
