//! Priority: groups of servers in order, each with a limit of its own.
//!
//! The driver handles tiers of priority and their limits, with every algorithm; this entry adds the choice within a
//! group.
//! Source: ZenLoad priority; NGINX's `backup` is the case of two groups, LVS fo and ovf those of one server each.
//! Cost: that of `by`, for each group that is full.
//! If no server of a group is eligible, the driver goes to the next group.

use std::sync::Arc;

use super::least_conn::Connections;
use super::random;
use crate::spec::{Entry, Host, Key, Kind, Parameter, Share, Times};
use crate::structures::round_robin::RoundRobinPlan;
use crate::structures::scored::least_score;

pub(crate) const ENTRY: Entry = Entry {
    name: "priority",
    aliases: &["prioridad"],
    summary: "groups of servers in order of priority; the next group when those before it are full or down",
    what: "\
        The servers with the smallest priority number get the requests. The next group is used when all servers \
        before it are down or at their max_conns, or when the group before it has as many requests in flight as its \
        limit. The limit of a group is exact over all workers. Within a group, the parameter by names the algorithm; \
        it uses the weights.\n\n\
        Backup servers come after all priorities.",
    when: "\
        Use it for a second data centre that takes requests only when the first one is full or down.",
    when_not: "\
        Do not use it if requests within a group should go by response time or load: name that algorithm instead. \
        The priority of a server and the limit of a group work with every algorithm. With by=round_robin and \
        by=random a slow server gets its full share.",
    nginx: None,
    parameters: &[Parameter {
        name: "by",
        summary: "algorithm within a group",
        kind: Kind::Choice(&["round_robin", "least_conn", "random"]),
        default: "round_robin",
    }],
    source: "ZenLoad priority; LVS fo, ovf",
    cost: "that of the algorithm within the group",
    linear: false,
    times: Times::Never,
    host: Host::Any,
    share: Share::Groups,
    key: Key::None,
    needs_key: false,
    strict: None,
    backup: true,
    build: |spec, tier| match spec.choice("by") {
        "least_conn" => least_score(tier, Connections),
        "random" => random::plan(tier),
        _ => Arc::new(RoundRobinPlan::new(tier)),
    },
};
