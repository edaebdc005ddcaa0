//! Priority: groups of servers in order, each with a limit of its own.
//!
//! Levels of priority and their limits are the driver's and work with every algorithm; this entry is the name for them,
//! and says how a group shares its requests out.
//! Source: ZenLoad priority; NGINX's `backup` is the case of two groups, LVS fo and ovf those of one server each.
//! Cost: that of `by`, for each group that is full. Nobody eligible in a group: the driver goes on to the next.

use std::sync::Arc;

use super::least_conn::Connections;
use super::random;
use super::round_robin::RoundRobinPlan;
use crate::registry::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::scored::least_score;

pub(crate) const ENTRY: Entry = Entry {
    name: "priority",
    aliases: &["prioridad"],
    summary: "groups of servers in order of priority, the next one when those before are full or down",
    description: "\
        Servers with the least priority number get the requests; those of the next number when all before are down, at \
        their max_conns, or when the group as a whole has as many requests in flight as its limit says. The limit of a \
        group is exact over all workers.\n\n\
        Priorities and limits work with every algorithm; this one is for those who want nothing else. Within a group \
        requests are shared out as by says, in proportion to the weights. Backups come after all priorities.",
    nginx: None,
    parameters: &[Parameter {
        name: "by",
        summary: "how a group shares its requests out",
        kind: Kind::Choice(&["round_robin", "least_conn", "random"]),
        default: "round_robin",
    }],
    source: "ZenLoad priority; LVS fo, ovf",
    cost: "that of the algorithm within the group",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Weights,
    key: Key::None,
    backup: true,
    build: |spec, level| match spec.choice("by") {
        "least_conn" => least_score(level, Connections),
        "random" => random::plan(level),
        _ => Arc::new(RoundRobinPlan::new(level)),
    },
};
