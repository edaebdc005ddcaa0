//! Questions and answers as DNS has them on the wire.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// A name may be an alias of an alias so many times.
const ALIASES: usize = 16;

/// Bytes of an answer that a server may send by UDP.
const PAYLOAD: u16 = 1232;

/// How long a name that does not exist is remembered, unless the answer says less.
const LONGEST_NEGATIVE: Duration = Duration::from_secs(60);
/// The same for an answer that says nothing.
const NEGATIVE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Addresses of IPv4.
    V4,
    /// Addresses of IPv6.
    V6,
    /// Servers of a service.
    Service,
}

impl Kind {
    /// Whether an address is of this kind.
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Kind::V4 => address.is_ipv4(),
            Kind::V6 => address.is_ipv6(),
            Kind::Service => false,
        }
    }

    fn record(self) -> RecordType {
        match self {
            Kind::V4 => RecordType::A,
            Kind::V6 => RecordType::AAAA,
            Kind::Service => RecordType::SRV,
        }
    }
}

/// A server of a service (SRV).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The servers of the least number are used first.
    pub priority: u16,
    /// Its share among those of its priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its name.
    pub host: String,
}

/// A question on its way. The case of its letters and its number are random, and an answer has to repeat both.
#[derive(Debug, Clone)]
pub struct Question {
    id: u16,
    name: Name,
    kind: Kind,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The response code: 0 for an answer, 3 for a name that does not exist.
    pub code: u16,
    /// The answer did not fit.
    pub truncated: bool,
    /// Addresses, of the kind that was asked for.
    pub addresses: Vec<IpAddr>,
    /// Servers of a service.
    pub targets: Vec<Target>,
    /// The name is an alias of this one, of which the answer says nothing else.
    pub alias: Option<String>,
    /// How long the answer may be kept.
    pub ttl: Duration,
}

/// What a message from a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The answer.
    Answer(Response),
    /// Not an answer to this question: malformed, forged or late.
    Other,
}

impl Question {
    /// A question about a host; `None` if this cannot be a name.
    pub fn new(host: &str, kind: Kind) -> Option<Question> {
        let mut name = Name::from_ascii(host).ok().filter(|_| !host.is_empty())?;
        name.set_fqdn(true);
        name.randomize_label_case();
        Some(Question { id: rand::random(), name, kind })
    }

    /// The message to a server.
    pub fn bytes(&self) -> Vec<u8> {
        let mut query = Query::query(self.name.clone(), self.kind.record());
        query.set_query_class(DNSClass::IN);
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(query).set_edns(edns);
        message.to_vec().unwrap_or_default()
    }

    /// Reads a message that has come.
    pub fn read(&self, bytes: &[u8]) -> Reading {
        let Ok(message) = Message::from_vec(bytes) else { return Reading::Other };
        let metadata = &message.metadata;
        if metadata.id != self.id || metadata.message_type != MessageType::Response {
            return Reading::Other;
        }
        // A server that cannot read the question may leave it out; an answer with addresses must have it.
        let refuses = metadata.response_code == ResponseCode::FormErr && message.queries.is_empty();
        let repeats = |query: &Query| {
            query.name().eq_case(&self.name)
                && query.query_type() == self.kind.record()
                && query.query_class() == DNSClass::IN
        };
        let is_repeated = message.queries.len() == 1 && repeats(&message.queries[0]);
        if !refuses && !is_repeated {
            return Reading::Other;
        }
        Reading::Answer(self.follow(&message))
    }

    /// The records of the name, or of what it is an alias of.
    fn follow(&self, message: &Message) -> Response {
        let mut response = Response {
            code: u16::from(message.metadata.response_code),
            truncated: message.metadata.truncation,
            addresses: Vec::new(),
            targets: Vec::new(),
            alias: None,
            ttl: Duration::from_secs(u64::from(u32::MAX)),
        };
        let records = |name: &Name| -> Vec<&Record> {
            message.answers.iter().filter(|record| record.name == *name && record.dns_class == DNSClass::IN).collect()
        };
        let mut name = &self.name;
        for _ in 0..ALIASES {
            let of_name = records(name);
            for record in &of_name {
                response.take(record, self.kind);
            }
            if !response.is_empty() {
                return response;
            }
            let alias = of_name.into_iter().find_map(|record| match &record.data {
                RData::CNAME(alias) => Some((&alias.0, record.ttl)),
                _ => None,
            });
            let Some((alias, ttl)) = alias else { break };
            response.keep_for(ttl);
            name = alias;
        }
        if *name != self.name {
            response.alias = Some(text(name));
        }
        if response.alias.is_none() || response.code != 0 {
            response.ttl = negative_ttl(&message.authorities);
        }
        response
    }
}

impl Response {
    /// Whether it has no records of the kind.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.targets.is_empty()
    }

    fn take(&mut self, record: &Record, kind: Kind) {
        match (&record.data, kind) {
            (RData::A(address), Kind::V4) => self.addresses.push(IpAddr::V4(address.0)),
            (RData::AAAA(address), Kind::V6) => self.addresses.push(IpAddr::V6(address.0)),
            (RData::SRV(server), Kind::Service) => self.targets.push(Target {
                priority: server.priority,
                weight: server.weight,
                port: server.port,
                host: text(&server.target),
            }),
            _ => return,
        }
        self.keep_for(record.ttl);
    }

    fn keep_for(&mut self, seconds: u32) {
        // RFC 2181, 8: a value whose first bit is set counts as zero.
        let seconds = if seconds > i32::MAX as u32 { 0 } else { seconds };
        self.ttl = self.ttl.min(Duration::from_secs(seconds.into()));
    }
}

/// A name in lower case, without the dot of the root.
fn text(name: &Name) -> String {
    let text = name.to_lowercase().to_ascii();
    text.strip_suffix('.').map_or_else(|| text.clone(), str::to_owned)
}

/// RFC 2308, 5: the least of the SOA record's own time and its last number.
fn negative_ttl(authorities: &[Record]) -> Duration {
    let soa = authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    soa.map_or(NEGATIVE, |seconds| Duration::from_secs(seconds.into()).min(LONGEST_NEGATIVE))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::rr::rdata;
    use proptest::prelude::*;

    use super::*;

    /// An answer to a question, before records are added.
    pub fn answer(question: &Question) -> Message {
        let asked = Message::from_vec(&question.bytes()).unwrap();
        let mut message = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
        message.add_queries(asked.queries);
        message
    }

    fn name(text: &str) -> Name {
        let mut name = Name::from_ascii(text).unwrap();
        name.set_fqdn(true);
        name
    }

    fn address(host: &str, ttl: u32, last: u8) -> Record {
        Record::from_rdata(name(host), ttl, RData::A(rdata::A(Ipv4Addr::new(10, 0, 0, last))))
    }

    fn alias(host: &str, ttl: u32, of: &str) -> Record {
        Record::from_rdata(name(host), ttl, RData::CNAME(rdata::CNAME(name(of))))
    }

    fn read(question: &Question, message: &Message) -> Response {
        match question.read(&message.to_vec().unwrap()) {
            Reading::Answer(response) => response,
            Reading::Other => panic!("not an answer"),
        }
    }

    /// Answers of dnsmasq to questions about app.example.com, with which fuzzing begins.
    #[test]
    fn answers_of_a_name_server_are_read() {
        let read = |file: &str, kind: Kind| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns").join(file);
            let mut message = std::fs::read(path).unwrap();
            let question = Question::new("app.example.com", kind).unwrap();
            for place in [0..2, 12..33] {
                message[place.clone()].copy_from_slice(&question.bytes()[place]);
            }
            match question.read(&message) {
                Reading::Answer(response) => response,
                Reading::Other => panic!("{file} is no answer"),
            }
        };
        let counts = |response: Response| (response.code, response.addresses.len(), response.targets.len());
        assert_eq!(counts(read("a", Kind::V4)), (0, 2, 0));
        assert_eq!(counts(read("a_without_edns", Kind::V4)), (0, 2, 0));
        assert_eq!(counts(read("aaaa", Kind::V6)), (0, 1, 0));
        assert_eq!(counts(read("cname_a", Kind::V4)), (0, 1, 0));
        assert_eq!(counts(read("cname_aaaa", Kind::V6)), (0, 1, 0));
        assert_eq!(read("cname_elsewhere", Kind::V4).alias.as_deref(), Some("elsewhere.example.org"));
        assert_eq!(counts(read("srv", Kind::Service)), (0, 0, 4));
        assert_eq!(counts(read("no_such_type", Kind::Service)), (0, 0, 0));
        assert!(read("truncated", Kind::V4).truncated);
        assert_eq!(counts(read("by_tcp", Kind::V4)), (0, 120, 0));
        assert_eq!(counts(read("no_such_name", Kind::V4)), (3, 0, 0));
        assert_eq!(counts(read("no_such_name_soa", Kind::V4)).1, 0);
        assert_eq!(counts(read("refused", Kind::V4)), (5, 0, 0));
    }

    #[test]
    fn records_of_the_name_are_taken_and_no_others() {
        let question = Question::new("app.example.com", Kind::V4).unwrap();
        let mut message = answer(&question);
        message.add_answers([
            address("app.example.com", 60, 1),
            address("other.example.com", 5, 66),
            address("APP.example.com", 30, 2),
        ]);
        let response = read(&question, &message);
        assert_eq!(response.addresses, ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap()));
        assert_eq!((response.ttl, response.alias), (Duration::from_secs(30), None));
    }

    #[test]
    fn aliases_are_followed() {
        let question = Question::new("www.example.com", Kind::V4).unwrap();
        let mut message = answer(&question);
        message.add_answers([
            address("c.example.net", 300, 7),
            alias("www.example.com", 20, "b.example.net"),
            alias("b.example.net", 40, "c.example.net"),
        ]);
        let response = read(&question, &message);
        assert_eq!((response.addresses.len(), response.ttl), (1, Duration::from_secs(20)));
        // Of the last name nothing is known: it has to be asked for.
        let mut message = answer(&question);
        message.add_answer(alias("www.example.com", 20, "elsewhere.example"));
        let response = read(&question, &message);
        assert_eq!((response.alias.as_deref(), response.ttl), (Some("elsewhere.example"), Duration::from_secs(20)));
        // A circle ends.
        let mut message = answer(&question);
        message.add_answers([alias("www.example.com", 9, "b.example"), alias("b.example", 9, "www.example.com")]);
        assert!(read(&question, &message).is_empty());
    }

    #[test]
    fn what_is_not_an_answer_to_the_question_is_left_out() {
        let question = Question::new("a-name-with-many-letters.example.com", Kind::V4).unwrap();
        let good = answer(&question);
        assert!(matches!(question.read(&good.to_vec().unwrap()), Reading::Answer(_)));
        let changed = |change: &dyn Fn(&mut Message)| {
            let mut message = good.clone();
            change(&mut message);
            question.read(&message.to_vec().unwrap())
        };
        assert_eq!(changed(&|message| message.metadata.id = message.metadata.id.wrapping_add(1)), Reading::Other);
        assert_eq!(changed(&|message| message.metadata.message_type = MessageType::Query), Reading::Other);
        assert_eq!(changed(&|message| message.queries.clear()), Reading::Other);
        // Forty letters in the same random case are one chance in 2^31.
        assert_eq!(
            changed(&|message| {
                let lower = message.queries[0].name().to_lowercase();
                let upper = Name::from_ascii(lower.to_ascii().to_uppercase()).unwrap();
                message.queries[0].set_name(upper);
            }),
            Reading::Other
        );
        assert_eq!(
            changed(&|message| {
                message.queries[0].set_query_type(RecordType::AAAA);
            }),
            Reading::Other
        );
    }

    #[test]
    fn a_name_that_does_not_exist_has_a_time() {
        let question = Question::new("no.example.com", Kind::V4).unwrap();
        let mut message = answer(&question);
        message.metadata.response_code = ResponseCode::NXDomain;
        let soa = rdata::SOA::new(name("ns.example.com"), name("root.example.com"), 1, 2, 3, 4, 17);
        message.add_authority(Record::from_rdata(name("example.com"), 900, RData::SOA(soa)));
        let response = read(&question, &message);
        assert_eq!((response.code, response.ttl), (3, Duration::from_secs(17)));
    }

    #[test]
    fn a_name_must_be_one() {
        let long = "x".repeat(64);
        let longer = "abc.".repeat(70);
        for host in ["", "a..b", &long, &longer, "ä.example"] {
            let question = Question::new(host, Kind::V4);
            assert!(question.is_none(), "{host}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_come(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..60, byte: u8) {
            let question = Question::new("app.example.com", Kind::V4).unwrap();
            let _ = question.read(&bytes);
            let mut message = answer(&question);
            message.add_answers([address("app.example.com", 60, 1), alias("b.example", 9, "app.example.com")]);
            let mut good = message.to_vec().unwrap();
            if let Some(place) = good.get_mut(at) {
                *place = byte;
            }
            let _ = question.read(&good);
        }
    }
}
