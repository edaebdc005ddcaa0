//! All paths. The router, the `Allow` field and the description of the API are made of this table.

use serde_json::{Value, json};

use super::resources::{self as does, Answered};
use super::row::{Call, Handler, Method, Operation, Row};

/// The versions that are answered, all with the objects of the last one.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 1..=9;

const fn get(summary: &'static str, gives: &'static str, handler: Handler) -> Operation {
    Operation { method: Method::Get, summary, argument: None, takes: "", status: 200, gives, handler }
}

const fn reset(summary: &'static str, handler: Handler) -> Operation {
    Operation { method: Method::Delete, summary, argument: None, takes: "", status: 204, gives: "", handler }
}

const fn row(path: &'static str, operations: &'static [Operation]) -> Row {
    Row { path, operations }
}

const SERVERS: &str = "The servers as they would be configured";
const ADD: &str = "Adds a server";
const SET: &str = "Changes parameters of a server";
const REMOVE: &str = "Removes a server and answers with those that are left";

const fn post(summary: &'static str, takes: &'static str, gives: &'static str, handler: Handler) -> Operation {
    Operation { method: Method::Post, summary, argument: None, takes, status: 201, gives, handler }
}

const fn patch(
    summary: &'static str,
    takes: &'static str,
    status: u16,
    gives: &'static str,
    handler: Handler,
) -> Operation {
    Operation { method: Method::Patch, summary, argument: None, takes, status, gives, handler }
}

const fn remove(summary: &'static str, gives: &'static str, handler: Handler) -> Operation {
    Operation { method: Method::Delete, summary, argument: None, takes: "", status: 200, gives, handler }
}

/// It reads an argument of the query.
const fn with(argument: &'static str, operation: Operation) -> Operation {
    Operation { argument: Some(argument), ..operation }
}

const KEYVAL: &[Operation] = &[
    with("key", get("The pairs of a zone", "Pairs", does::keyval)),
    post("Adds pairs", "NewPairs", "", does::add_pairs),
    patch("Changes pairs, and removes those with null", "ChangedPairs", 204, "", does::set_pairs),
    reset("Removes all pairs of a zone", does::clear_pairs),
];

const OWN_UPSTREAM: &[Operation] = &[
    get("Rates and times of the servers of an upstream", "OwnUpstream", does::own_upstream),
    patch(
        "Chooses another method, or with null that of the configuration",
        "ChosenMethod",
        200,
        "OwnUpstream",
        does::set_method,
    ),
];

const PICKS: &[Operation] = &[get("Why the last requests went where they went, sampled", "Picks", does::picks)];

const SHADOWS: &[Operation] = &[
    get("What the shadows of an upstream would have chosen", "Shadows", does::shadows),
    reset("Counts the choices of the shadows from 0", does::reset_shadows),
];

const SOURCES: &[Operation] = &[get("How the names and the sources of an upstream are", "Sources", does::sources)];

const EXPERIMENT: &[Operation] = &[
    get("The experiment of an upstream: the last one, or what is configured", "Experiment", does::experiment),
    post(
        "Begins an experiment; what is not given is as configured",
        "NewExperiment",
        "Experiment",
        does::begin_experiment,
    ),
    remove("Ends the experiment, and goes back to the method of the upstream", "Experiment", does::stop_experiment),
];

/// Every path, with its version in the place of all versions.
pub const TABLE: &[Row] = &[
    row("/", &[get("The versions of the API", "Numbers", versions)]),
    row("/9/", &[get("What there is", "Names", root)]),
    row("/9/openapi.json", &[get("This description", "Description", does::description)]),
    row("/9/nginx", &[get("The program and its configuration", "Program", does::about)]),
    row(
        "/9/processes",
        &[
            get("Worker processes that were replaced", "Processes", does::processes),
            reset("Counts replaced worker processes from 0", does::reset_processes),
        ],
    ),
    row(
        "/9/connections",
        &[
            get("Connections of clients", "Connections", does::connections),
            reset("Counts connections from 0", does::reset_connections),
        ],
    ),
    row(
        "/9/ssl",
        &[
            get("TLS handshakes with clients", "Handshakes", does::handshakes),
            reset("Counts handshakes from 0", does::reset_handshakes),
        ],
    ),
    row("/9/slabs", &[get("Empty: Balanza has no slabs", "Empty", does::nothing)]),
    row("/9/slabs/{zone}", &[get("Not found: Balanza has no slabs", "Empty", does::no_slab)]),
    row("/9/license", &[get("Empty: Balanza has no licence", "Empty", does::nothing)]),
    row("/9/resolvers", &[get("Questions and answers by zone of resolver", "Resolvers", does::resolvers)]),
    row(
        "/9/resolvers/{zone}",
        &[
            get("Questions and answers of a resolver", "Resolver", does::resolver),
            reset("Counts the questions of a resolver from 0", does::reset_resolver),
        ],
    ),
    row("/9/workers", &[get("The worker threads", "Workers", does::workers)]),
    row(
        "/9/workers/{worker}",
        &[get("A worker thread", "Worker", does::worker), reset("Counts a worker from 0", does::reset_worker)],
    ),
    row("/9/http", &[get("What there is of http", "Names", http)]),
    row(
        "/9/http/requests",
        &[
            get("Requests of clients", "Requests", does::requests),
            reset("Counts requests from 0", does::reset_requests),
        ],
    ),
    row("/9/http/server_zones", &[get("Requests by zone of server", "ServerZones", does::server_zones)]),
    row(
        "/9/http/server_zones/{zone}",
        &[
            get("Requests of a zone", "ServerZone", does::server_zone),
            reset("Counts a zone from 0", does::reset_server_zone),
        ],
    ),
    row("/9/http/location_zones", &[get("Requests by zone of location", "LocationZones", does::location_zones)]),
    row(
        "/9/http/location_zones/{zone}",
        &[
            get("Requests of a zone", "LocationZone", does::location_zone),
            reset("Counts a zone from 0", does::reset_location_zone),
        ],
    ),
    row("/9/http/caches", &[get("Empty: Balanza has no caches", "Empty", does::nothing)]),
    row("/9/http/caches/{cache}", &[get("Not found: Balanza has no caches", "Empty", does::no_cache)]),
    row("/9/http/limit_conns", &[get("Decisions of limit_conn by zone", "ConnectionLimits", does::connection_limits)]),
    row(
        "/9/http/limit_conns/{zone}",
        &[
            get("Decisions of a zone", "ConnectionLimit", does::connection_limit),
            reset("Counts a zone from 0", does::reset_connection_limit),
        ],
    ),
    row("/9/http/limit_reqs", &[get("Decisions of limit_req by zone", "RequestLimits", does::request_limits)]),
    row(
        "/9/http/limit_reqs/{zone}",
        &[
            get("Decisions of a zone", "RequestLimit", does::request_limit),
            reset("Counts a zone from 0", does::reset_request_limit),
        ],
    ),
    row("/9/http/keyvals", &[get("Pairs by zone", "AllPairs", does::keyvals)]),
    row("/9/http/keyvals/{zone}", KEYVAL),
    row("/9/http/upstreams", &[get("Upstreams with their servers", "Upstreams", does::upstreams)]),
    row(
        "/9/http/upstreams/{upstream}",
        &[
            get("An upstream with its servers", "Upstream", does::upstream),
            reset("Counts the servers of an upstream from 0", does::reset_upstream),
        ],
    ),
    row(
        "/9/http/upstreams/{upstream}/servers",
        &[get(SERVERS, "Servers", does::servers), post(ADD, "NewServer", "Server", does::add_server)],
    ),
    row(
        "/9/http/upstreams/{upstream}/servers/{server}",
        &[
            get("A server as it would be configured", "Server", does::one_server),
            patch(SET, "ChangedServer", 200, "Server", does::set_server),
            remove(REMOVE, "Servers", does::remove_server),
        ],
    ),
    row("/9/stream", &[get("What there is of stream", "Names", stream)]),
    row("/9/stream/server_zones", &[get("Sessions by zone of server", "SessionZones", does::server_zones)]),
    row(
        "/9/stream/server_zones/{zone}",
        &[
            get("Sessions of a zone", "SessionZone", does::server_zone),
            reset("Counts a zone from 0", does::reset_server_zone),
        ],
    ),
    row(
        "/9/stream/limit_conns",
        &[get("Decisions of limit_conn by zone", "ConnectionLimits", does::connection_limits)],
    ),
    row(
        "/9/stream/limit_conns/{zone}",
        &[
            get("Decisions of a zone", "ConnectionLimit", does::connection_limit),
            reset("Counts a zone from 0", does::reset_connection_limit),
        ],
    ),
    row("/9/stream/keyvals", &[get("Pairs by zone", "AllPairs", does::keyvals)]),
    row("/9/stream/keyvals/{zone}", KEYVAL),
    row("/9/stream/upstreams", &[get("Upstreams with their servers", "StreamUpstreams", does::upstreams)]),
    row(
        "/9/stream/upstreams/{upstream}",
        &[
            get("An upstream with its servers", "StreamUpstream", does::upstream),
            reset("Counts the servers of an upstream from 0", does::reset_upstream),
        ],
    ),
    row(
        "/9/stream/upstreams/{upstream}/servers",
        &[get(SERVERS, "StreamServers", does::servers), post(ADD, "NewStreamServer", "StreamServer", does::add_server)],
    ),
    row(
        "/9/stream/upstreams/{upstream}/servers/{server}",
        &[
            get("A server as it would be configured", "StreamServer", does::one_server),
            patch(SET, "ChangedStreamServer", 200, "StreamServer", does::set_server),
            remove(REMOVE, "StreamServers", does::remove_server),
        ],
    ),
    row("/balanza", &[get("What there is beside version 9", "Names", own)]),
    row("/balanza/access", &[get("Whether changes are allowed here", "Access", does::access)]),
    row("/balanza/events", &[with("since", get("What happened lately", "Events", does::events))]),
    row("/balanza/diff", &[get("What runs otherwise than configured", "Differences", does::diff)]),
    row("/balanza/methods", &[get("How each algorithm is chosen", "Names", does::methods)]),
    row("/balanza/experiments", &[get("The experiments of all upstreams", "Experiments", does::experiments)]),
    row("/balanza/http", &[get("What there is of http", "Names", own_http)]),
    row("/balanza/http/server_zones", &[get("Rates and times by zone", "OwnZones", does::own_server_zones)]),
    row("/balanza/http/location_zones", &[get("Rates and times by zone", "OwnZones", does::own_location_zones)]),
    row("/balanza/http/upstreams", &[get("Rates and times by server", "OwnUpstreams", does::own_upstreams)]),
    row("/balanza/http/upstreams/{upstream}", OWN_UPSTREAM),
    row("/balanza/http/upstreams/{upstream}/experiment", EXPERIMENT),
    row("/balanza/http/upstreams/{upstream}/picks", PICKS),
    row("/balanza/http/upstreams/{upstream}/shadows", SHADOWS),
    row("/balanza/http/upstreams/{upstream}/sources", SOURCES),
    row("/balanza/stream", &[get("What there is of stream", "Names", own_stream)]),
    row("/balanza/stream/server_zones", &[get("Rates and times by zone", "OwnZones", does::own_server_zones)]),
    row("/balanza/stream/upstreams", &[get("Rates and times by server", "OwnUpstreams", does::own_upstreams)]),
    row("/balanza/stream/upstreams/{upstream}", OWN_UPSTREAM),
    row("/balanza/stream/upstreams/{upstream}/experiment", EXPERIMENT),
    row("/balanza/stream/upstreams/{upstream}/picks", PICKS),
    row("/balanza/stream/upstreams/{upstream}/shadows", SHADOWS),
    row("/balanza/stream/upstreams/{upstream}/sources", SOURCES),
];

fn names(names: &[&str]) -> Answered {
    Ok(json!(names).into())
}

fn versions(_: &mut Call<'_>) -> Answered {
    Ok(VERSIONS.collect::<Value>().into())
}

fn root(call: &mut Call<'_>) -> Answered {
    let all =
        ["nginx", "processes", "connections", "slabs", "http", "stream", "resolvers", "ssl", "license", "workers"];
    let shown = all.into_iter().filter(|name| *name != "stream" || call.view.has_stream());
    Ok(shown.collect::<Value>().into())
}

fn http(_: &mut Call<'_>) -> Answered {
    let all =
        ["requests", "server_zones", "location_zones", "caches", "limit_conns", "limit_reqs", "upstreams", "keyvals"];
    names(&all)
}

fn stream(_: &mut Call<'_>) -> Answered {
    names(&["server_zones", "limit_conns", "upstreams", "keyvals"])
}

fn own(_: &mut Call<'_>) -> Answered {
    names(&["access", "diff", "events", "experiments", "methods", "http", "stream"])
}

fn own_http(_: &mut Call<'_>) -> Answered {
    names(&["server_zones", "location_zones", "upstreams"])
}

fn own_stream(_: &mut Call<'_>) -> Answered {
    names(&["server_zones", "upstreams"])
}
