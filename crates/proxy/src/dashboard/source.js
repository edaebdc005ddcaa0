// What the API says, asked again and again.

/** How often, in milliseconds, history and percentiles are read: the API has steps of this length. */
const SLOW = 10000;
/** How long a rate looks back, in milliseconds. */
const LOOK_BACK = 6000;

class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Counters as rates over the last seconds. */
class Rates {
  constructor() {
    this.samples = new Map();
  }

  add(key, now, counts) {
    let of = this.samples.get(key);
    const last = of?.list[of.list.length - 1];
    // A counter that falls was reset.
    if (!of || counts.some((count, nth) => count < last.counts[nth])) {
      of = { list: [], rates: counts.map(() => null) };
      this.samples.set(key, of);
    }
    of.list.push({ now, counts });
    while (of.list.length > 2 && of.list[1].now <= now - LOOK_BACK) of.list.shift();
    const first = of.list[0];
    const seconds = (now - first.now) / 1000;
    if (seconds > 0) of.rates = counts.map((count, nth) => (count - first.counts[nth]) / seconds);
    of.seen = now;
    return of.rates;
  }

  forget(now) {
    for (const [key, of] of this.samples) if (of.seen < now) this.samples.delete(key);
  }
}

class Source {
  constructor(api, changed) {
    this.api = api;
    this.changed = changed;
    this.rates = new Rates();
    this.events = [];
    this.lastEvent = 0;
    this.notes = 0;
    this.lostSince = null;
    this.error = null;
    this.write = false;
    this.view = "upstreams";
    this.upstreams = [];
    this.slowAt = -Infinity;
    this.own = { http: {}, stream: {} };
    this.zones = {};
    this.pid = null;
    /** The upstream whose last choices are shown, as in paths. */
    this.picksOf = null;
    this.picks = [];
  }

  async ask(method, path, value) {
    const options = { method, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(10000) };
    if (value !== undefined) {
      options.body = JSON.stringify(value);
      options.headers = { "Content-Type": "application/json" };
    }
    const response = await fetch(`${this.api}/${path}`, options);
    const text = await response.text();
    let found = null;
    try {
      found = text === "" ? null : JSON.parse(text);
    } catch {
      throw new ApiError(response.status, `the answer of ${this.api}/${path} is not from the API (status ${response.status})`);
    }
    if (!response.ok) throw new ApiError(response.status, found?.error?.text ?? `status ${response.status}`);
    return found;
  }

  get(path) {
    return this.ask("GET", path);
  }

  /** What another version or configuration may not have. */
  async optional(path, otherwise) {
    try {
      return await this.get(path);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return otherwise;
      throw error;
    }
  }

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    this.tick();
  }

  /** Asks now instead of in a while. */
  soon(all = false) {
    if (all) this.slowAt = -Infinity;
    clearTimeout(this.timer);
    if (this.asks) this.again = true;
    else this.tick();
  }

  async tick() {
    clearTimeout(this.timer);
    this.asks = true;
    this.again = false;
    const begun = performance.now();
    let wait;
    try {
      await this.read();
      this.found();
      // A large farm is asked less often, so that answers take a small part of the time.
      wait = Math.min(5000, Math.max(1000, 10 * (performance.now() - begun)));
    } catch (error) {
      this.lose(error);
      wait = 2000;
    }
    this.asks = false;
    this.changed();
    if (document.hidden) wait = Math.max(wait, SLOW);
    this.timer = setTimeout(() => this.tick(), this.again ? 0 : wait);
  }

  lose(error) {
    const silent = !(error instanceof ApiError);
    this.error = silent ? "The balancer does not answer" : `The API at ${this.api} refuses: ${error.message}`;
    if (this.lostSince === null) {
      this.lostSince = Date.now();
      this.note("lost", this.error);
    }
  }

  found() {
    if (this.lostSince === null) return;
    const text = `The balancer answers again, after ${duration(Date.now() - this.lostSince)}`;
    this.lostSince = this.error = null;
    this.note("back", text);
    say(`${text}.`, "good");
  }

  /** An event that the page has seen itself. */
  note(kind, text) {
    this.notes += 1;
    this.events.push({ id: `page ${this.notes}`, time: new Date().toISOString(), kind, text });
  }

  async read() {
    const now = performance.now();
    const slow = now - this.slowAt >= SLOW;
    if (slow) {
      const [parts, access] = await Promise.all([this.get("9/"), this.optional("balanza/access", { write: false })]);
      this.hasStream = parts.includes("stream");
      this.write = access.write;
    }
    const stream = (path, otherwise) => (this.hasStream ? this.optional(path, otherwise) : otherwise);
    const { picksOf } = this;
    const [about, connections, requests, http, tcp, events, picks, experiments] = await Promise.all([
      this.get("9/nginx"),
      this.get("9/connections"),
      this.get("9/http/requests"),
      this.get("9/http/upstreams"),
      stream("9/stream/upstreams", {}),
      this.optional(`balanza/events?since=${this.lastEvent}`, []),
      picksOf ? this.optional(`balanza/${picksOf}/picks`, []) : [],
      this.optional("balanza/experiments", []),
    ]);
    if (this.pid === null || this.pid === about.pid) {
      this.takeEvents(events);
    } else {
      // Another process numbers its events from 1, and may have another configuration.
      this.lastEvent = 0;
      this.again = true;
      this.slowAt = -Infinity;
    }
    this.pid = about.pid;
    if (slow) {
      [this.own.http, this.own.stream] = await Promise.all([
        this.optional("balanza/http/upstreams", {}),
        stream("balanza/stream/upstreams", {}),
      ]);
      this.slowAt = now;
    }
    if (this.view !== "upstreams") await this.readView(now);
    // How far the clock of the balancer is ahead of this one.
    this.ahead = Date.parse(about.timestamp) - Date.now();
    // Another server may be shown meanwhile.
    if (this.picksOf === picksOf) this.picks = picks;
    this.experiments = new Map(experiments.map((one) => [`${one.protocol}/${one.upstream}`, one]));
    this.total = { about, connections, requests };
    [this.total.rate] = this.rates.add("total", now, [requests.total]);
    this.upstreams = [...this.joined("http", http, now), ...this.joined("stream", tcp, now)];
    this.rates.forget(now - 60000);
  }

  takeEvents(events) {
    for (const event of events) {
      if (event.id > this.lastEvent) {
        this.lastEvent = event.id;
        this.events.push(event);
      }
    }
    if (this.events.length > 1500) this.events.splice(0, this.events.length - 1000);
  }

  /** What only one view shows. */
  async readView(now) {
    const stream = (path) => (this.hasStream ? this.optional(path, {}) : {});
    const optional = (path) => this.optional(path, {});
    const wanted = {
      zones: {
        "9/http/server_zones": optional,
        "9/http/location_zones": optional,
        "9/stream/server_zones": stream,
        "balanza/http/server_zones": optional,
        "balanza/http/location_zones": optional,
        "balanza/stream/server_zones": stream,
      },
      limits: { "9/http/limit_reqs": optional, "9/http/limit_conns": optional, "9/stream/limit_conns": stream },
      workers: { "9/workers": optional, "9/resolvers": optional },
      changes: { "balanza/diff": optional },
    }[this.view];
    if (!wanted) return;
    const paths = Object.keys(wanted);
    const values = await Promise.all(paths.map((path) => wanted[path](path)));
    paths.forEach((path, nth) => (this.zones[path] = values[nth]));
    this.zones.now = now;
  }

  /** How long a server may drain; null without a deadline. */
  secondsLeft({ peer, own }) {
    if (peer.state !== "draining" || !own?.drain?.deadline) return null;
    return Math.max(0, Math.ceil((Date.parse(own.drain.deadline) - Date.now() - this.ahead) / 1000));
  }

  /** The upstreams of a protocol, with what both parts of the API know of them. */
  joined(protocol, found, now) {
    return Object.entries(found).map(([name, value]) => {
      const own = this.own[protocol][name] ?? { servers: [] };
      const known = new Map(own.servers.map((server) => [server.id, server]));
      const key = `${protocol}/${name}`;
      const upstream = { key, protocol, name, own, zone: value.zone, zombies: value.zombies, experiment: this.experiments.get(key) };
      upstream.servers = value.peers.map((peer) => {
        const count = protocol === "http" ? peer.requests : peer.connections;
        const failed = peer.fails + (peer.responses?.["5xx"] ?? 0);
        const id = `${key}/${peer.id}`;
        const [rate, errors] = this.rates.add(id, now, [count - peer.active, failed]);
        const one = { key: id, upstream, peer, own: known.get(peer.id), count, failed, rate, errors };
        one.secondsLeft = this.secondsLeft(one);
        return one;
      });
      summarise(upstream);
      return upstream;
    });
  }
}

const PROBLEMS = new Set(["down", "unavail", "unhealthy", "checking"]);

/** The sums of an upstream, and which share of its requests each server gets and would get by weight. */
function summarise(upstream) {
  const servers = upstream.servers;
  const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
  upstream.rate = servers.some((server) => server.rate !== null) ? sum(servers.map((server) => server.rate)) : null;
  upstream.errors = sum(servers.map((server) => server.errors));
  upstream.active = sum(servers.map((server) => server.peer.active));
  upstream.up = servers.filter((server) => server.peer.state === "up").length;
  upstream.problems = servers.filter((server) => PROBLEMS.has(server.peer.state)).length;
  const isEligible = (server) => server.peer.state === "up" && !server.peer.backup;
  let eligible = servers.filter(isEligible);
  if (eligible.length === 0) eligible = servers.filter((server) => server.peer.state === "up");
  const weights = sum(eligible.map((server) => server.peer.weight));
  const chosen = new Set(eligible);
  for (const server of servers) {
    server.expected = chosen.has(server) ? server.peer.weight / weights : 0;
    // Fewer than one request in two seconds say nothing about shares.
    server.share = upstream.rate >= 0.5 && server.rate !== null ? server.rate / upstream.rate : null;
    server.errorShare = server.rate > 0 ? Math.min(1, server.errors / server.rate) : server.errors > 0 ? 1 : 0;
  }
}
