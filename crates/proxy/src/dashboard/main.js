// The page: its state, which the URL keeps, what the buttons do, and its start.

const VIEWS = { upstreams: "Upstreams", zones: "Zones", limits: "Limits", workers: "Workers", changes: "Changes", events: "Events" };
const NO_STATE = { view: "upstreams", filter: "", state: "", first: true, sort: "", falling: false, server: "" };
const THEMES = ["auto", "light", "dark"];

/** What each button changes. */
const CHANGES = {
  drain: { values: () => ({ drain: true, down: false }), text: "drains" },
  undrain: { values: () => ({ drain: false }), text: "takes new clients again" },
  down: { values: () => ({ down: true, drain: false }), text: "is down" },
  up: { values: () => ({ down: false }), text: "is up again" },
};

class Page {
  constructor() {
    this.state = { ...NO_STATE };
    this.source = new Source(document.querySelector("meta[name=api]").content, () => this.show());
    this.makers = {
      upstreams: () => new UpstreamsView(this),
      zones: () => zonesView(this),
      limits: () => limitsView(this),
      workers: () => workersView(this),
      changes: () => changesView(this),
      events: () => new EventsView(this),
    };
    this.views = {};
    this.tiles = new Map();
    this.columnsOf = {};
    this.details = new DetailsDialog(this);
    this.links = Object.entries(VIEWS).map(([view, label]) => el("a", { href: `#view=${view}`, "data-view": view }, label));
    byId("views").append(...this.links);
    const states = { "": "all", problems: "problems", up: "up", draining: "draining", down: "down", backup: "backup" };
    byId("state").append(...Object.entries(states).map(([value, text]) => el("option", { value }, text)));
    this.listen();
    this.readHash();
    this.source.start();
  }

  listen() {
    byId("filter").addEventListener("input", (event) => this.setState({ filter: event.target.value }));
    byId("state").addEventListener("change", (event) => this.setState({ state: event.target.value }));
    byId("first").addEventListener("change", (event) => this.setState({ first: event.target.checked }));
    byId("tools").addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("hashchange", () => this.readHash());
    document.addEventListener("keydown", (event) => {
      const types = /^(input|select|textarea)$/i.test(event.target.tagName);
      if (event.key === "/" && !types && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        byId("filter").focus();
      }
    });
    let theme = "auto";
    try {
      theme = localStorage.getItem("balanza theme") ?? theme;
    } catch {
      // A browser may refuse to keep anything: the theme is that of the system then.
    }
    this.setTheme(THEMES.includes(theme) ? theme : "auto");
    byId("theme").addEventListener("click", () => {
      this.setTheme(THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length]);
      try {
        localStorage.setItem("balanza theme", this.theme);
      } catch {
        // As above.
      }
    });
  }

  setTheme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    setText(byId("theme"), `Theme: ${theme}`);
  }

  readHash() {
    const found = new URLSearchParams(location.hash.slice(1));
    const view = found.get("view");
    this.state = {
      view: view in VIEWS ? view : "upstreams",
      filter: found.get("filter") ?? "",
      state: found.get("state") ?? "",
      first: found.get("first") !== "0",
      sort: found.get("sort") ?? "",
      falling: found.get("falling") === "1",
      server: found.get("server") ?? "",
    };
    this.stateChanged();
  }

  /** Changes the state; the URL follows, so that a link shows the same. */
  setState(changes) {
    if (Object.entries(changes).every(([key, value]) => this.state[key] === value)) return;
    Object.assign(this.state, changes);
    const parts = new URLSearchParams();
    for (const [key, value] of Object.entries(this.state)) {
      if (value !== NO_STATE[key]) parts.set(key, value === true ? "1" : value === false ? "0" : value);
    }
    history.replaceState(null, "", `#${parts}`);
    this.stateChanged();
  }

  stateChanged() {
    const { view, filter, state, first } = this.state;
    if (byId("filter").value !== filter) byId("filter").value = filter;
    byId("state").value = state;
    byId("first").checked = first;
    byId("state-label").hidden = byId("first-label").hidden = view !== "upstreams";
    for (const link of this.links) setAttribute(link, "aria-current", link.dataset.view === view ? "page" : null);
    this.views[view] ??= this.makers[view]();
    if (byId("main").firstChild !== this.views[view].node) byId("main").replaceChildren(this.views[view].node);
    document.body.dataset.view = view;
    if (this.source.view !== view) {
      this.source.view = view;
      this.source.soon();
    }
    this.show(true);
  }

  sortBy(column) {
    const { sort, falling } = this.state;
    const numeric = column.kind?.startsWith("n ") || column.kind === "n";
    if (sort !== column.key) this.setState({ sort: column.key, falling: numeric });
    else if (falling === numeric) this.setState({ falling: !falling });
    else this.setState({ sort: "", falling: false });
  }

  isFiltered() {
    return this.state.filter !== "" || this.state.state !== "";
  }

  /** The servers of an upstream that the filter leaves, in their order. */
  chosen(upstream) {
    const { filter, state, first, sort, falling } = this.state;
    const wanted = filter.toLowerCase().trim();
    const ofUpstream = `${upstream.protocol} ${upstream.name} ${upstream.own.algorithm ?? ""}`.toLowerCase().includes(wanted);
    const matches = ({ peer }) => {
      if (state === "problems" && !PROBLEMS.has(peer.state)) return false;
      if (state === "backup" && !peer.backup) return false;
      if (["up", "draining", "down"].includes(state) && peer.state !== state) return false;
      return ofUpstream || `${peer.server} ${peer.name} ${peer.state}`.toLowerCase().includes(wanted);
    };
    let servers = upstream.servers.filter(matches);
    const column = this.columns(upstream.protocol).find((one) => one.key === sort);
    if (column?.value) servers = sorted(servers, column.value, falling);
    if (first) servers = sorted(servers, ({ peer }) => (PROBLEMS.has(peer.state) ? WORST.indexOf(peer.state) : WORST.length), false);
    return servers;
  }

  /** The columns of a table of servers. */
  columns(protocol) {
    const key = `${protocol} ${this.source.write}`;
    return (this.columnsOf[key] ??= serverColumns(this, protocol));
  }

  show(asked = false) {
    const { source } = this;
    this.showConnection();
    this.views[this.state.view]?.update(asked);
    this.details.update();
    const events = source.events.slice(-40).reverse();
    showEvents(byId("latest"), events);
    if (!source.total) return;
    const { about, connections, requests } = source.total;
    setText(byId("version"), about.build);
    const servers = source.upstreams.flatMap((upstream) => upstream.servers);
    const up = servers.filter((server) => server.peer.state === "up").length;
    const problems = servers.filter((server) => PROBLEMS.has(server.peer.state)).length;
    const draining = servers.length - up - problems;
    const of = (key) => servers.reduce((sum, server) => sum + (server[key] ?? 0), 0);
    const facts = {
      "Requests": perSecond(source.total.rate),
      "In flight": exact(requests.current),
      "Connections / idle": `${exact(connections.active)} / ${exact(connections.idle)}`,
      "Servers up": `${exact(up)} of ${exact(servers.length)}`,
      "Problems": exact(problems),
      "Draining": exact(draining),
      "Errors": perSecond(of("errors")),
      [`Configuration ${about.generation}`]: age(Date.parse(about.timestamp) - Date.parse(about.load_timestamp)),
    };
    showPairs(byId("tiles"), this.tiles, facts);
    this.tiles.get("Problems").parentNode.classList.toggle("bad", problems > 0);
    setText(byId("mode"), source.write ? "" : "read only");
    document.title = problems > 0 ? `(${problems}) Balanza` : `Balanza ${about.address}`;
  }

  showConnection() {
    const { source } = this;
    const lost = source.lostSince !== null;
    document.body.classList.toggle("stale", lost);
    const banner = byId("lost");
    banner.hidden = !lost;
    if (lost) setText(banner, `${source.error}, since ${clock(source.lostSince)}. The numbers are old. The page tries again by itself.`);
    else setText(banner, "");
    setText(byId("live-text"), lost ? "lost" : source.total ? "live" : "connecting");
    byId("live").dataset.state = lost ? "lost" : "live";
  }

  mayChange(upstream) {
    return this.source.write && upstream.zone !== undefined;
  }

  openServer(key) {
    this.setState({ server: key });
  }

  path(upstream, id) {
    const all = `9/${upstream.protocol}/upstreams/${encodeURIComponent(upstream.name)}/servers`;
    return id === undefined ? all : `${all}/${id}`;
  }

  async change(server, what) {
    const { peer, upstream } = server;
    const { values, text } = CHANGES[what];
    try {
      await this.source.ask("PATCH", this.path(upstream, peer.id), values());
      say(`${peer.server} ${text}.`, "good");
    } catch (error) {
      say(`${peer.server} was not changed: ${error.message}.`, "bad");
    }
    this.source.soon(true);
  }

  /** How each algorithm is chosen. */
  async knownMethods() {
    this.methods ??= await this.source.optional("balanza/methods", []).catch(() => []);
    return this.methods;
  }

  experimentPath({ protocol, name }) {
    return `balanza/${protocol}/upstreams/${encodeURIComponent(name)}/experiment`;
  }

  async stopExperiment(upstream) {
    try {
      await this.source.ask("DELETE", this.experimentPath(upstream));
      say(`The experiment of ${upstream.name} has ended.`, "good");
    } catch (error) {
      say(`The experiment of ${upstream.name} was not stopped: ${error.message}.`, "bad");
    }
    this.source.soon(true);
  }

  /** Asks for a method and tries it. */
  async chooseMethod(upstream) {
    const { own, protocol, name } = upstream;
    const methods = await this.knownMethods();
    const input = el("input", { name: "method", value: own.method, required: true, list: "methods", autocomplete: "off", spellcheck: "false" });
    const back = button("As in the configuration", () => (input.value = own.configured_method), "small");
    const text = `It is written as in the configuration, which has ${own.configured_method}. A reload keeps it unless it changes the method there.`;
    const content = [el("p", {}, text), el("div", { class: "fields" }, el("label", {}, "Method", input), el("span", {}, back)),
      el("datalist", { id: "methods" }, ...methods.map((value) => el("option", { value })))];
    askInDialog(`Method of ${name}`, content, "Use", "main", async () => {
      const found = await this.source.ask("PATCH", `balanza/${protocol}/upstreams/${encodeURIComponent(name)}`, { method: input.value });
      say(`${name} uses ${found.method}.`, "good");
      this.source.soon(true);
    });
  }

  /** Asks for a deadline and drains. */
  drainUntil(server) {
    const { peer, upstream } = server;
    const input = el("input", { name: "timeout", value: "30s", required: true, autocomplete: "off", spellcheck: "false" });
    const text = "It gets no new clients from now on. After this time it is set down, and what it still serves is closed.";
    askInDialog(`Drain ${peer.server} with a deadline`, [el("p", {}, text), el("div", { class: "fields" }, el("label", {}, "Time, as in 30s or 5m", input))], "Drain", "main",
      async () => {
        const values = { drain: true, down: false, drain_timeout: input.value.trim() };
        await this.source.ask("PATCH", this.path(upstream, peer.id), values);
        say(`${peer.server} drains for ${values.drain_timeout} at most.`, "good");
        this.source.soon(true);
      });
  }

  async edit(server) {
    const { peer, upstream } = server;
    let given;
    try {
      given = await this.source.get(this.path(upstream, peer.id));
    } catch (error) {
      say(`The parameters of ${peer.server} cannot be read: ${error.message}.`, "bad");
      return;
    }
    askForServer(`${peer.server} in ${upstream.name}`, upstream.protocol, given, async (values) => {
      await this.source.ask("PATCH", this.path(upstream, peer.id), values);
      say(`${peer.server} is changed.`, "good");
      this.source.soon(true);
    });
  }

  add(upstream) {
    askForServer(`New server in ${upstream.name}`, upstream.protocol, null, async (values) => {
      const added = await this.source.ask("POST", this.path(upstream), values);
      say(`${added.server} is added.`, "good");
      this.source.soon(true);
    });
  }

  remove(server) {
    const { peer, upstream } = server;
    const text = `It gets no requests any more. ${exact(peer.active)} that are in flight go on to their end.`;
    askInDialog(`Remove ${peer.server} from ${upstream.name}?`, [el("p", {}, text)], "Remove", "danger", async () => {
      await this.source.ask("DELETE", this.path(upstream, peer.id));
      say(`${peer.server} is removed.`, "good");
      this.setState({ server: "" });
      this.source.soon(true);
    });
  }
}

const page = new Page();
