//! What is changed of upstreams' servers while they serve: by the program's host, and by files.

use std::sync::Arc;

use balanza_config::model::membership::{self, Change, ChangeError, Changed, Found, Protocol};
use balanza_config::model::{Level, UpstreamServer};

use super::State;
use crate::lists;
use crate::servers::membership::{Balancing, Membership, Shared};

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
            && let Err(error) = lists::write(&list.path, self.own(shared))
        {
            let message = format_args!(
                "the servers of upstream \"{upstream}\" cannot be kept in \"{}\": {error}",
                list.path.display()
            );
            self.log(Level::Alert, message);
        }
        Ok(())
    }

    /// The servers that an upstream is configured with.
    pub(super) fn configured<'a>(&'a self, shared: &'a Shared) -> &'a [UpstreamServer] {
        let listed = self.listed.get(&(shared.protocol, shared.conf.name.clone()));
        listed.unwrap_or(&shared.conf.servers)
    }

    fn known(&self, shared: &Shared) -> Option<&Changed> {
        self.changes.get(&(shared.protocol, shared.conf.name.clone()))
    }

    /// What was changed of the servers of an upstream, for another change.
    pub(super) fn changed(&self, shared: &Shared) -> Changed {
        self.known(shared).cloned().unwrap_or_else(|| Changed::new(self.configured(shared)))
    }

    /// The servers of an upstream that do not come from names or sources.
    pub(super) fn own<'a>(&'a self, shared: &'a Shared) -> &'a [UpstreamServer] {
        self.known(shared).map_or_else(|| self.configured(shared), Changed::servers)
    }

    /// What an upstream uses of its sources.
    pub(super) fn found(&self, shared: &Shared) -> &[Found] {
        self.known(shared).map_or(&[], Changed::found)
    }

    /// Works out the servers of an upstream with these of its sources; none if it has them.
    pub(super) fn prepare_found(
        &mut self,
        shared: &Shared,
        found: &[Found],
    ) -> anyhow::Result<Option<Arc<Membership>>> {
        let outside = self.generation.outside();
        let list = outside.behind(self.own(shared), shared.protocol, &shared.conf, found);
        if list == shared.membership().servers {
            return Ok(None);
        }
        shared.prepare(list, &mut self.servers).map(Some)
    }

    /// Keeps what an upstream uses of its sources, for changes, and for a process that begins while they are lost.
    pub(super) fn remember_found(&mut self, shared: &Shared, found: Vec<Found>) {
        if self.found(shared) == found {
            return;
        }
        let mut changed = self.changed(shared);
        changed.set_found(found);
        membership::keep(&mut self.changes, (shared.protocol, shared.conf.name.clone()), changed);
        self.tell_changes();
    }

    /// Uses the changed servers of an upstream.
    pub(super) fn use_changed(&mut self, shared: &Shared, changed: Changed) -> Result<(), ChangeError> {
        let balancing = shared.balancing(&changed).map_err(ChangeError::Refused)?;
        self.use_balancing(shared, changed, balancing)
    }

    /// The same with a method that is read already.
    pub(super) fn use_balancing(
        &mut self,
        shared: &Shared,
        changed: Changed,
        balancing: Arc<Balancing>,
    ) -> Result<(), ChangeError> {
        let generation = Arc::clone(&self.generation);
        // What the sources have now may be refused.
        let found = changed.found().to_vec();
        let list = generation.outside().behind(changed.servers(), shared.protocol, &shared.conf, &found);
        let membership = shared.prepare_with(list, balancing, &mut self.servers);
        shared.replace(membership.map_err(|error| ChangeError::Refused(format!("{error:#}")))?);
        membership::keep(&mut self.changes, (shared.protocol, shared.conf.name.clone()), changed);
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
        let path = conf.path.display();
        match adopted {
            Ok(None) => {}
            Ok(Some(count)) => self.log(
                Level::Notice,
                format_args!("upstream \"{upstream}\" has {count} servers, because \"{path}\" has changed"),
            ),
            Err(problem) => {
                if !conf.is_state {
                    self.listed.insert(key, before);
                }
                self.log(
                    Level::Error,
                    format_args!("the servers of upstream \"{upstream}\" stay as they were, because \"{path}\" is wrong: {problem}"),
                );
            }
        }
    }
}
