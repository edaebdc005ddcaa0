//! A program of the user's chooses; what it leaves open is chosen as by least_conn.
//!
//! The program belongs to the host, which tells it the candidates ([`crate::Driver::candidates`]) and takes its choice with
//! [`crate::Driver::claim`], so that eligibility and limits are those of all algorithms. Without an answer in time the host
//! picks from here.
//! Source: Crossroads, external program. Cost of a pick: that of least_conn; the question to the program is O(n).

use super::least_conn;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};

pub(crate) const ENTRY: Entry = Entry {
    name: "external",
    aliases: &[],
    summary: "a program of yours that stays running is asked for each choice",
    description: "\
        Each worker starts the program and keeps it. For each choice it gets a line on its standard input, \
        \"pick ID KEY SERVER SERVER …\" with SERVER = INDEX:WEIGHT:IN_FLIGHT:NAME for every server that may be chosen, and \
        answers with a line \"ID INDEX\", in whatever order it likes; \"ID -\" leaves the choice to least_conn. KEY is the \
        request's key, by default the client's address, with unusual bytes as %XX; WEIGHT is what the server may take now, \
        slow start included.\n\n\
        An answer that is late, wrong or missing is least_conn's choice, so a slow, broken or dead program costs a request \
        at most the time limit. A program that ends is started again after 100 ms, then after twice as long each time, up \
        to 30 s. For rules that no algorithm has; the question grows with the servers.",
    nginx: None,
    parameters: &[
        Parameter {
            name: "program",
            summary: "its path and its arguments, separated by blanks",
            kind: Kind::Text,
            default: "",
        },
        Parameter {
            name: "timeout",
            summary: "how long an answer may take, for instance 500us",
            kind: Kind::Time(0, 10_000),
            default: "2ms",
        },
    ],
    source: "Crossroads, external program",
    cost: "O(n) for the question, then least_conn's",
    linear: true,
    times: Times::Never,
    host: Host::Program,
    share: Share::Load,
    key: Key::Any,
    backup: true,
    build: |spec, level| (least_conn::ENTRY.build)(spec, level),
};
