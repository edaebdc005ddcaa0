//! A program of the user's chooses; least_conn chooses if it does not answer.
//!
//! The host runs the program, sends it the candidates ([`crate::Driver::candidates`]) and takes its choice with
//! [`crate::Driver::claim`], so eligibility and limits are the same as for all algorithms. Without an answer in time
//! the host uses this policy.
//! Source: Crossroads, external program. Cost of a pick: that of least_conn; the question to the program is O(n).

use super::least_conn;
use crate::spec::{Entry, Host, Key, Kind, PROGRAM, Parameter, Share, Times};

pub(crate) const ENTRY: Entry = Entry {
    name: "external",
    aliases: &[],
    summary: "a program of yours chooses the server",
    what: "\
        Each worker starts the program and keeps it running. For each choice the program gets a line on its standard \
        input, \"pick ID KEY SERVER SERVER …\", with SERVER = INDEX:WEIGHT:IN_FLIGHT:NAME for every server that may \
        be chosen. It answers with a line \"ID INDEX\", in any order. \"ID -\" leaves the choice to least_conn. KEY \
        is the request's key, by default the client's address, with unusual bytes as %XX. WEIGHT includes slow \
        start.\n\n\
        If the answer is late, wrong or missing, least_conn chooses; so a slow or dead program delays a request by \
        at most timeout. A program that ends is started again after 100 ms; the pause doubles each time, up to 30 s. \
        Backup servers are used when all others are closed or full.",
    when: "\
        Use it for a rule that no algorithm has.",
    when_not: "\
        Do not use it for many servers or very many requests per second: every choice writes a line that lists all \
        servers and waits for the program.",
    nginx: None,
    parameters: &[
        Parameter {
            name: PROGRAM,
            summary: "path and arguments, separated by spaces",
            kind: Kind::Program,
            default: "",
        },
        Parameter {
            name: "timeout",
            summary: "longest wait for an answer, for example 500us",
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
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| (least_conn::ENTRY.build)(spec, tier),
};
