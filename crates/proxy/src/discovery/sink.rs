//! What a source tells: its servers are stored, the engine is told of changes, the log of what is wrong.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use balanza_config::model::discover::Discover;
use balanza_config::model::membership::Found;
use balanza_config::model::{Level, UpstreamServer};
use tokio::time::{Instant, sleep_until};

use super::{Key, Shared};
use crate::log::error::ErrorWriter;
use crate::source_condition::Condition;

/// The least time between two lists of a source. A change costs as much as the upstream has servers, so changes that come
/// together are adopted together.
const BETWEEN: Duration = Duration::from_millis(100);
/// Different reasons that are logged while a source is lost.
const REASONS: usize = 8;
/// Characters of a message that are logged.
const LONGEST: usize = 500;
/// Servers, and entries that are none, that a source may have: they are kept in memory.
pub const MOST: usize = 65_536;
/// Wrong entries that are logged one by one.
const COMPLAINTS: usize = 20;

/// The servers among a source's entries, and what is wrong with the others.
pub type Entries = (Vec<UpstreamServer>, BTreeSet<String>);

/// The servers of an upstream by source; none before a source's first answer.
pub type Places = Rc<RefCell<Vec<Place>>>;

/// The servers of a source.
pub struct Place {
    /// Which source.
    pub source: String,
    /// Its servers.
    pub servers: Option<Vec<UpstreamServer>>,
}

/// Where a source tells of its servers.
pub struct Sink {
    key: Key,
    index: usize,
    template: UpstreamServer,
    /// What the log calls the source.
    name: String,
    places: Places,
    shared: Arc<Shared>,
    log: ErrorWriter,
    /// Dropped when the source has been asked.
    known: Option<mpsc::Sender<()>>,
    /// When the source told of its servers.
    told: Option<Instant>,
    /// Since the source was asked from the beginning.
    answered: bool,
    /// Why it is lost, as far as it was logged.
    reasons: BTreeSet<String>,
    /// Wrong entries of the last answer.
    complaints: BTreeSet<String>,
}

impl Sink {
    /// For the source at `index` of an upstream.
    pub fn new(
        key: Key,
        index: usize,
        discover: &Discover,
        places: Places,
        shared: Arc<Shared>,
        log: ErrorWriter,
        known: Option<mpsc::Sender<()>>,
    ) -> Sink {
        Sink {
            key,
            index,
            template: discover.template.clone(),
            name: discover.source.to_string(),
            places,
            shared,
            log,
            known,
            told: None,
            answered: false,
            reasons: BTreeSet::new(),
            complaints: BTreeSet::new(),
        }
    }

    /// What the servers have in common.
    pub fn template(&self) -> &UpstreamServer {
        &self.template
    }

    /// The source is asked from the beginning.
    pub fn begin(&mut self) {
        self.answered = false;
    }

    /// Whether it has answered since.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Waits until the source may tell of its servers again.
    pub async fn ready(&self) {
        if let Some(told) = self.told {
            sleep_until(told + BETWEEN).await;
        }
    }

    /// These are all entries of the source.
    ///
    /// # Errors
    /// Its servers are too many. Those before stay.
    pub fn tell(&mut self, (servers, complaints): Entries) -> Result<(), String> {
        self.complain(complaints);
        self.set(servers)
    }

    /// These are all servers of the source.
    ///
    /// # Errors
    /// They are too many. Those before stay.
    pub fn set(&mut self, mut servers: Vec<UpstreamServer>) -> Result<(), String> {
        limit(servers.len())?;
        self.answered = true;
        self.told = Some(Instant::now());
        let upstream = &self.key.1;
        if !self.reasons.is_empty() {
            self.reasons.clear();
            self.log.write(Level::Notice, format_args!("upstream \"{upstream}\": {} answers again", self.name));
        }
        // The order of an answer says nothing.
        servers.sort_by(|one, other| one.address.cmp(&other.address));
        servers.dedup_by(|one, other| one.address == other.address);
        self.note(|condition| condition.answered(servers.len()));
        if self.places.borrow()[self.index].servers.as_ref() != Some(&servers) {
            let count = servers.len();
            self.log.write(Level::Info, format_args!("upstream \"{upstream}\": {} has {count} servers", self.name));
            self.places.borrow_mut()[self.index].servers = Some(servers);
            self.store();
            self.shared.tell(&self.key);
        }
        self.known.take();
        Ok(())
    }

    /// Notes how the source is.
    fn note(&self, note: impl FnOnce(&mut Condition)) {
        let source = &self.places.borrow()[self.index].source;
        self.shared.note(&self.key, source, note);
    }

    /// Stores the servers of all sources of the upstream.
    fn store(&self) {
        let places = self.places.borrow();
        let found = |place: &Place| Some(Found { source: place.source.clone(), servers: place.servers.clone()? });
        let sources: Vec<&str> = places.iter().map(|place| place.source.as_str()).collect();
        self.shared.store(&self.key, &sources, places.iter().filter_map(found).collect());
    }

    /// Entries of the source that are no servers: each is logged when it appears.
    fn complain(&mut self, complaints: BTreeSet<String>) {
        let upstream = &self.key.1;
        let new = complaints.difference(&self.complaints);
        for complaint in new.clone().take(COMPLAINTS) {
            self.log.write(Level::Error, format_args!("upstream \"{upstream}\": {}: {}", self.name, short(complaint)));
        }
        let more = new.count().saturating_sub(COMPLAINTS);
        if more > 0 {
            self.log.write(
                Level::Error,
                format_args!("upstream \"{upstream}\": {}: {more} more entries are wrong", self.name),
            );
        }
        self.note(|condition| condition.wrong = complaints.len());
        self.complaints = complaints;
    }

    /// The source is lost. Its servers stay.
    pub fn lost(&mut self, why: &str) {
        let why = short(why);
        self.known.take();
        self.note(|condition| condition.error = Some(why.to_owned()));
        if self.reasons.len() < REASONS && self.reasons.insert(why.to_owned()) {
            let count = self.places.borrow()[self.index].servers.as_ref().map(Vec::len);
            let (name, upstream) = (&self.name, &self.key.1);
            match count {
                Some(count) => self.log.write(
                    Level::Error,
                    format_args!("upstream \"{upstream}\": {name}: {why}; its last {count} servers stay"),
                ),
                None => self.log.write(
                    Level::Error,
                    format_args!("upstream \"{upstream}\": {name}: {why}; no servers of it are known yet"),
                ),
            }
        }
    }
}

/// The servers among entries, and what is wrong with the others, which have these names in messages.
pub fn sort_out<E>(
    entries: impl IntoIterator<Item = E>,
    read: impl Fn(&E) -> Result<UpstreamServer, String>,
    name: impl Fn(&E) -> String,
) -> Entries {
    let (mut servers, mut complaints) = (Vec::new(), BTreeSet::new());
    for entry in entries {
        match read(&entry) {
            Ok(server) => servers.push(server),
            Err(why) => drop(complaints.insert(format!("{} is left out: {why}", name(&entry)))),
        }
    }
    (servers, complaints)
}

/// Refuses more entries than a source may have.
///
/// # Errors
/// They are too many.
pub fn limit(entries: usize) -> Result<(), String> {
    if entries > MOST { Err(format!("it has more than {MOST} entries")) } else { Ok(()) }
}

/// The beginning of a message: a source may have any text in it.
pub fn short(message: &str) -> &str {
    let end = message.char_indices().nth(LONGEST).map_or(message.len(), |(at, _)| at);
    &message[..end]
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use balanza_config::model::ServerAddress;
    use balanza_config::model::discover::{self, Api, Etcd, Source};
    use balanza_config::model::membership::Protocol;

    use super::*;
    use crate::discovery::lock;
    use crate::log::LogFiles;

    /// A server with this number.
    pub fn server(number: u32) -> UpstreamServer {
        let address = format!("10.{}.{}.{}:80", number >> 16, number >> 8 & 255, number & 255);
        UpstreamServer::new(address.clone(), ServerAddress::Inet(address.parse().unwrap()))
    }

    /// A sink, and how often the engine was told.
    pub fn sink() -> (Sink, Arc<AtomicUsize>) {
        let shared = Arc::<Shared>::default();
        let told = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&told);
        *lock(&shared.notify) = Some(Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let api = Api {
            place: discover::Place::Host("localhost".into(), 1),
            authority: "localhost:1".into(),
            tls: None,
            token: None,
        };
        let source = Source::Etcd(Etcd { api, prefix: "/".into(), user: None });
        let discover = Discover { source, template: server(0) };
        let place = |source: &str, servers| Place { source: source.to_owned(), servers };
        let places = vec![place("one", None), place("other", Some(vec![server(9)]))];
        let places = Rc::new(RefCell::new(places));
        let key = (Protocol::Http, "app".to_owned());
        (Sink::new(key, 0, &discover, places, shared, ErrorWriter::new(&[], &LogFiles::default()), None), told)
    }

    #[test]
    fn long_messages_are_cut_at_characters() {
        assert_eq!(short("wrong"), "wrong");
        assert_eq!(short(&"é".repeat(600)), "é".repeat(LONGEST));
    }

    #[test]
    fn servers_are_stored_with_those_of_other_sources() {
        let (mut sink, told) = sink();
        let found = |sink: &Sink| -> Vec<String> {
            let found = lock(&sink.shared.found);
            let found = found[&(Protocol::Http, "app".to_owned())].iter();
            found.flat_map(|found| &found.servers).map(|server| server.name.clone()).collect()
        };
        sink.set(vec![server(2), server(1), server(2)]).unwrap();
        assert_eq!(found(&sink), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]);
        sink.set(vec![server(1), server(2)]).unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1, "another order is no change");
        sink.lost("refused");
        assert_eq!((found(&sink).len(), told.load(Ordering::Relaxed)), (3, 1), "a lost source changes nothing");
        sink.set(Vec::new()).unwrap();
        assert_eq!((found(&sink), told.load(Ordering::Relaxed)), (vec!["10.0.0.9:80".to_owned()], 2));
        // A source of a configuration that may be in use still.
        let before = Found { source: "before".into(), servers: vec![server(7)] };
        sink.shared.store(&sink.key, &["before"], vec![before]);
        sink.set(vec![server(1)]).unwrap();
        assert_eq!(found(&sink), ["10.0.0.7:80", "10.0.0.1:80", "10.0.0.9:80"]);
    }

    #[test]
    fn too_many_servers_are_refused() {
        let (mut sink, told) = sink();
        let most = MOST as u32;
        sink.set((0..most).map(server).collect()).unwrap();
        let refused = sink.set((0..=most).map(server).collect());
        assert_eq!(refused, Err("it has more than 65536 entries".into()));
        assert_eq!(sink.places.borrow()[0].servers.as_ref().map(Vec::len), Some(MOST));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_together_are_adopted_together() {
        let (mut sink, told) = sink();
        let mut servers = Vec::new();
        let (mut dirty, begun) = (false, Instant::now());
        // A new server each millisecond: each change costs as much as there are servers.
        for number in 0..10_000 {
            let next = begun + Duration::from_millis(number);
            loop {
                tokio::select! {
                    biased;
                    () = sink.ready(), if dirty => {
                        sink.set(servers.clone()).unwrap();
                        dirty = false;
                    }
                    () = sleep_until(next) => break,
                }
            }
            servers.push(server(number as u32));
            dirty = true;
        }
        sink.ready().await;
        sink.set(servers).unwrap();
        let told = told.load(Ordering::Relaxed);
        assert!((90..=102).contains(&told), "{told}");
    }
}
