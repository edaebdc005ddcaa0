// The other views: zones, limits, workers with resolvers, events.

function counted(protocol, source, path, own) {
  const now = source.zones.now;
  return Object.entries(source.zones[path] ?? {}).map(([name, zone]) => {
    const codes = zone.responses ?? zone.sessions ?? {};
    const failed = codes["5xx"] ?? 0;
    const ended = (zone.requests ?? zone.connections) - (zone.processing ?? 0);
    const rates = source.rates.add(`${path} ${name}`, now, [ended, failed, zone.received, zone.sent, codes["4xx"] ?? 0]);
    return { key: name, name, zone, codes, rates, own: source.zones[own]?.[name], protocol };
  });
}

const count = (key, label, value, kind = "n") => ({ key, label, value, text: (row) => number(value(row)), kind });
const name = { key: "name", label: "Zone", text: (row) => row.name, value: (row) => row.name, kind: "name" };

function zoneColumns(protocol) {
  const rate = (nth) => (row) => row.rates[nth];
  const times = (which) => ({
    key: which, label: which, text: (row) => time(row.own?.times?.[which]), value: (row) => row.own?.times?.[which] ?? null,
    kind: which === "p95" ? "n" : "n p3",
  });
  const spark = {
    key: "history", label: "15 minutes", kind: "p2", make: (td) => {
      const one = sparkline("Requests in steps of 10 s");
      td.append(one.node);
      return (row) => one.update(row.own?.history?.requests ?? []);
    },
  };
  return [
    name,
    ...(protocol === "location" ? [] : [count("processing", "In flight", (row) => row.zone.processing)]),
    { key: "rate", label: "Rate", text: (row) => perSecond(row.rates[0]), value: rate(0), kind: "n" },
    count("total", protocol === "stream" ? "Sessions" : "Requests", (row) => row.zone.requests ?? row.zone.connections, "n p2"),
    count("2xx", "2xx", (row) => row.codes["2xx"], "n p3"),
    ...(protocol === "stream" ? [] : [count("3xx", "3xx", (row) => row.codes["3xx"], "n p3")]),
    count("4xx", "4xx", (row) => row.codes["4xx"], "n p2"),
    {
      key: "5xx", label: "5xx", value: (row) => row.codes["5xx"], kind: "n", make: (td) => (row) => {
        setText(td, number(row.codes["5xx"]));
        td.classList.toggle("bad", row.rates[1] > 0);
        td.title = `${perSecond(row.rates[1])} now`;
      },
    },
    times("p50"), times("p95"), times("p99"),
    { key: "in", label: "Received", text: (row) => perBytes(row.rates[2]), value: rate(2), kind: "n p3" },
    { key: "out", label: "Sent", text: (row) => perBytes(row.rates[3]), value: rate(3), kind: "n p2" },
    spark,
  ];
}

const perBytes = (value) => (value === null ? NONE : `${bytes(value)}/s`);

function limitColumns(kind) {
  const rate = (key, label, nth) => ({
    key: `${key} rate`, label, text: (row) => perSecond(row.rates[nth]), value: (row) => row.rates[nth], kind: "n",
  });
  const of = (key, label) => count(key, label, (row) => row.zone[key], "n p2");
  const more = kind === "requests" ? [of("delayed", "Delayed"), of("delayed_dry_run", "Delayed, dry run")] : [];
  return [name, rate("passed", "Passed now", 0), rate("rejected", "Rejected now", 1), of("passed", "Passed"),
    of("rejected", "Rejected"), of("rejected_dry_run", "Rejected, dry run"), ...more];
}

/** Several tables under headings, each with rows that a function finds. */
class TablesView {
  constructor(page, tables, empty) {
    this.page = page;
    this.parts = tables.map(([title, columns, rows]) => {
      const table = new Table(columns, title, { sort: (column) => page.sortBy(column), rowHead: true });
      const node = el("section", { class: "upstream spread" }, el("header", {}, el("h2", {}, title)), table.node);
      return { table, node, rows, columns };
    });
    this.empty = el("p", { class: "empty" }, empty);
    this.node = el("div", {}, ...this.parts.map((part) => part.node), this.empty);
  }

  update(asked) {
    const { filter, sort, falling } = this.page.state;
    let some = false;
    for (const { table, node, rows, columns } of this.parts) {
      let found = rows(this.page.source);
      node.hidden = found.length === 0;
      some ||= found.length > 0;
      found = found.filter((row) => row.name.toLowerCase().includes(filter.toLowerCase()));
      const column = columns.find((one) => one.key === sort);
      if (column?.value) found = sorted(found, column.value, falling);
      table.mark(sort, falling);
      table.update(found, asked);
    }
    this.empty.hidden = some || !this.page.source.total;
  }
}

function zonesView(page) {
  const rows = (protocol, path) => (source) => counted(protocol, source, `9/${path}`, `balanza/${path}`);
  return new TablesView(page, [
    ["Servers", zoneColumns("http"), rows("http", "http/server_zones")],
    ["Locations", zoneColumns("location"), rows("location", "http/location_zones")],
    ["Streams", zoneColumns("stream"), rows("stream", "stream/server_zones")],
  ], "The configuration has no zones.");
}

function limitsView(page) {
  const rows = (path) => (source) => Object.entries(source.zones[path] ?? {}).map(([zone, counts]) => {
    const rates = source.rates.add(`${path} ${zone}`, source.zones.now, [counts.passed, counts.rejected]);
    return { key: zone, name: zone, zone: counts, rates };
  });
  return new TablesView(page, [
    ["Limits of requests (limit_req)", limitColumns("requests"), rows("9/http/limit_reqs")],
    ["Limits of connections (limit_conn)", limitColumns("connections"), rows("9/http/limit_conns")],
    ["Limits of connections in stream", limitColumns("connections"), rows("9/stream/limit_conns")],
  ], "The configuration has no zones of limit_req or limit_conn.");
}

function workersView(page) {
  const workers = (source) => (source.zones["9/workers"] ?? []).map((worker) => {
    const counts = [worker.http.requests.total, worker.connections.accepted];
    const rates = source.rates.add(`worker ${worker.id}`, source.zones.now, counts);
    return { key: String(worker.id), name: String(worker.id), zone: worker, rates };
  });
  const resolvers = (source) => Object.entries(source.zones["9/resolvers"] ?? {}).map(([key, zone]) => ({ key, name: key, zone }));
  const answers = (key) => count(key, key, (row) => row.zone.responses[key], key === "noerror" || key === "timedout" ? "n" : "n p3");
  return new TablesView(page, [
    ["Workers", [
      { ...name, label: "Worker" },
      { key: "rate", label: "Rate", text: (row) => perSecond(row.rates[0]), value: (row) => row.rates[0], kind: "n" },
      count("current", "In flight", (row) => row.zone.http.requests.current),
      count("requests", "Requests", (row) => row.zone.http.requests.total, "n p2"),
      count("active", "Connections", (row) => row.zone.connections.active),
      count("idle", "Idle", (row) => row.zone.connections.idle, "n p2"),
      count("accepted", "Accepted", (row) => row.zone.connections.accepted, "n p2"),
      count("dropped", "Dropped", (row) => row.zone.connections.dropped, "n p2"),
    ], workers],
    ["Resolvers", [
      { ...name, label: "Resolver" },
      count("names", "Names", (row) => row.zone.requests.name),
      count("services", "Services", (row) => row.zone.requests.srv, "n p2"),
      ...["noerror", "nxdomain", "servfail", "refused", "formerr", "notimp", "timedout", "unknown"].map(answers),
    ], resolvers],
  ], "");
}

/** What runs otherwise than the configuration has it, a row for each difference. */
function changesView(page) {
  const BY = { api: "API", file: "file", source: "names or sources" };
  const rows = (protocol) => (source) => Object.entries(source.zones["balanza/diff"]?.[protocol] ?? {}).flatMap(([upstream, found]) => {
    const row = (server, what, configured, running, by) =>
      ({ key: [upstream, server, what].join("\n"), name: upstream, server, what, configured, running, by: BY[by] ?? by });
    const shown = (value) => (value === null || value === undefined ? NONE : String(value));
    return [
      ...(found.method ? [row("", "method", found.method.configured, found.method.running, "api")] : []),
      ...found.added.map((one) => row(one.server, "server", NONE, `added, weight ${one.weight}`, one.by)),
      ...found.removed.map((one) => row(one.server, "server", "configured", "removed", one.by)),
      ...found.changed.flatMap((one) => Object.entries(one.parameters).map(([what, { configured, running }]) =>
        row(one.server, what, shown(configured), shown(running), one.by))),
    ];
  });
  const text = (key, label, kind = "") => ({ key, label, text: (row) => row[key], value: (row) => row[key], kind });
  const columns = [text("name", "Upstream", "name"), text("server", "Server", "wrap"), text("what", "What"), text("configured", "Configuration", "wrap"),
    text("running", "Running", "wrap"), text("by", "Changed by", "p3")];
  return new TablesView(page, [["Upstreams of http", columns, rows("http")], ["Upstreams of stream", columns, rows("stream")]],
    "Everything runs as the configuration has it.");
}

class EventsView {
  constructor(page) {
    this.page = page;
    this.list = el("ol", { class: "latest all" });
    this.empty = el("p", { class: "empty" });
    this.node = el("section", { class: "upstream" }, this.list, this.empty);
  }

  update() {
    const filter = this.page.state.filter.toLowerCase();
    const text = (event) => `${event.upstream ?? ""} ${event.server ?? ""} ${event.text}`.toLowerCase();
    const found = this.page.source.events.filter((event) => text(event).includes(filter));
    showEvents(this.list, found.slice(-500).reverse());
    setText(this.empty, found.length > 0 ? "" : "No events.");
  }
}
