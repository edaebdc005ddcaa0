// The view of upstreams and their servers.

/** The upstreams that are shown at first. */
const FIRST_UPSTREAMS = 30;

const WORST = ["unhealthy", "unavail", "down", "checking", "draining", "up"];
const GLYPHS = { up: "●", backup: "◇", draining: "◐", down: "○", unavail: "▲", unhealthy: "▲", checking: "◌" };

/** A time as it is counted down. */
function countdown(seconds) {
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

/** A state as a sign and a word: not by colour alone. */
function stateCell(td) {
  const sign = el("span", { class: "sign", "aria-hidden": "true" });
  const word = el("span");
  const pill = el("span", { class: "pill" }, sign, word);
  const until = el("small", { class: "until" });
  td.append(pill, until);
  return ({ peer, secondsLeft }) => {
    const state = peer.state === "up" && peer.backup ? "backup" : peer.state;
    setText(sign, GLYPHS[state] ?? "?");
    setText(word, state === "draining" ? `draining, ${exact(peer.active)} left` : state);
    setText(until, secondsLeft === null ? "" : `down in ${countdown(secondsLeft)}`);
    setAttribute(pill, "data-state", state);
    setAttribute(pill, "title", STATES[state] ?? null);
  };
}

function nameCell(page) {
  return (td) => {
    let server;
    const name = button("", () => page.openServer(server.key), "link");
    const more = el("small");
    td.append(name, more);
    return (row) => {
      server = row;
      const { peer } = row;
      setText(name, peer.server);
      setText(more, peer.name !== peer.server ? peer.name : "");
      setAttribute(td, "title", peer.name);
    };
  };
}

/** A bar for the share, with a mark where the share by weight is. */
function shareCell(td) {
  const fill = el("span", { class: "fill" });
  const mark = el("span", { class: "mark" });
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, fill, mark);
  const text = el("span");
  td.append(el("span", { class: "share" }, bar, text));
  let shown;
  return (row) => {
    const key = `${row.share?.toFixed(3)} ${row.expected.toFixed(3)}`;
    if (key === shown) return;
    shown = key;
    fill.style.setProperty("width", `${100 * (row.share ?? 0)}%`);
    mark.style.setProperty("left", `${100 * row.expected}%`);
    setText(text, percent(row.share));
    td.title = `${percent(row.share)} of the requests; by weight ${percent(row.expected)}`;
  };
}

function historyCell(td) {
  const spark = sparkline("Requests in steps of 10 s");
  td.append(spark.node);
  return (row) => spark.update(row.own?.history?.requests ?? [], row.upstream.most);
}

function actionsCell(page) {
  return (td) => {
    let server;
    const act = (what) => () => page.change(server, what);
    const drain = button("Drain", () => act(server.peer.state === "draining" ? "undrain" : "drain")(), "small");
    const down = button("Down", () => act(server.peer.state === "down" ? "up" : "down")(), "small");
    const edit = button("Edit", () => page.edit(server), "small");
    const group = el("span", { class: "actions" }, drain, down, edit);
    let allowed = false;
    return (row) => {
      server = row;
      const may = page.mayChange(row.upstream);
      if (may !== allowed) {
        allowed = may;
        if (may) td.append(group);
        else group.remove();
      }
      const { peer } = row;
      setText(drain, peer.state === "draining" ? "Undrain" : "Drain");
      setText(down, peer.state === "down" ? "Up" : "Down");
      for (const one of [drain, down, edit]) setAttribute(one, "aria-label", `${one.textContent} ${peer.server}`);
    };
  };
}

function serverColumns(page, protocol) {
  const times = (name) => (row) => row.own?.times?.[name] ?? null;
  const what = protocol === "http" ? "requests" : "sessions";
  return [
    { key: "server", label: "Server", make: nameCell(page), value: (row) => row.peer.server, kind: "name" },
    { key: "state", label: "State", make: stateCell, value: (row) => WORST.indexOf(row.peer.state), kind: "c-state" },
    { key: "weight", label: "Weight", text: (row) => exact(row.peer.weight), value: (row) => row.peer.weight, kind: "n p2" },
    { key: "share", label: "Share", make: shareCell, value: (row) => row.share, kind: "n p2",
      hint: `part of the upstream's ${what}; the mark is the part by weight` },
    { key: "active", label: "In flight", value: (row) => row.peer.active, kind: "n p3",
      text: ({ peer }) => (peer.max_conns ? `${exact(peer.active)} / ${exact(peer.max_conns)}` : exact(peer.active)),
      hint: `${what} that have not ended, and their limit` },
    { key: "rate", label: "Rate", text: (row) => perSecond(row.rate), value: (row) => row.rate, kind: "n" },
    { key: "errors", label: "Errors", make: errorsCell, value: (row) => row.errorShare, kind: "n",
      hint: "failed attempts and responses 5xx of the last seconds; all since the start in the title" },
    { key: "p50", label: "p50", text: (row) => time(times("p50")(row)), value: times("p50"), kind: "n p3",
      hint: "time of half of the responses of the last minutes" },
    { key: "p95", label: "p95", text: (row) => time(times("p95")(row)), value: times("p95"), kind: "n p1" },
    { key: "p99", label: "p99", text: (row) => time(times("p99")(row)), value: times("p99"), kind: "n p3" },
    { key: "history", label: "15 minutes", make: historyCell, kind: "p2", hint: `${what} in steps of 10 s` },
    ...(page.source.write ? [{ key: "actions", label: "Actions", make: actionsCell(page), kind: "p3 c-actions" }] : []),
  ];
}

function errorsCell(td) {
  return (row) => {
    setText(td, row.rate === null ? NONE : row.errorShare > 0 ? percent(row.errorShare) : "0");
    td.classList.toggle("bad", row.errorShare > 0.005);
    const title = `${exact(row.failed)} of ${exact(row.count)} since the start`;
    if (td.title !== title) td.title = title;
  };
}

/** One upstream: its head and its table. */
class UpstreamSection {
  constructor(page, upstream) {
    this.page = page;
    this.write = page.source.write;
    this.title = el("h2", { id: `title-${upstream.key}`.replace(/\s/g, "_") }, upstream.name);
    this.marks = el("p", { class: "marks" });
    this.sums = el("p", { class: "sums" });
    this.add = button("Add server", () => page.add(this.upstream), "small", { "aria-label": `Add server to ${upstream.name}` });
    this.method = button("Method", () => page.chooseMethod(this.upstream), "small", { "aria-label": `Method of ${upstream.name}` });
    const ask = () => askForExperiment(page, this.upstream, this.upstream.experiment);
    this.compare = button("Experiment", ask, "small", { "aria-label": `Experiment in ${upstream.name}` });
    this.actions = el("span", { class: "actions" }, this.method, this.compare, this.add);
    this.why = el("span", { class: "mode" });
    const sort = (column) => page.sortBy(column);
    this.table = new Table(page.columns(upstream.protocol), `Servers of ${upstream.name}`, {
      sort, rowHead: true, mark: (row) => (PROBLEMS.has(row.peer.state) ? "problem" : null),
    });
    this.shadows = new ShadowsPart();
    this.experiment = new ExperimentPart(page, upstream);
    this.node = el("section", { class: "upstream", "aria-labelledby": this.title.id },
      el("header", {}, this.title, this.marks, this.sums, this.why), this.table.node);
  }

  update(upstream, servers, asked) {
    this.upstream = upstream;
    const { own } = upstream;
    const parameters = Object.entries(own.parameters ?? {}).map(([name, value]) => ` ${name}=${value}`).join("");
    const marks = [upstream.protocol, own.algorithm ? `${own.algorithm}${parameters}` : ""].filter(Boolean);
    const other = own.method !== own.configured_method ? `chosen at run time; the configuration has ${own.configured_method}` : "";
    if (`${marks} ${other}` !== this.shownMarks) {
      this.shownMarks = `${marks} ${other}`;
      this.marks.replaceChildren(...marks.map((text) => el("span", { class: "tag" }, text)));
      if (other) this.marks.append(el("span", { class: "tag differs" }, other));
    }
    const sums = [`${upstream.up} of ${upstream.servers.length} up`, perSecond(upstream.rate), `${exact(upstream.active)} in flight`];
    if (own.times_all?.p95 !== null && own.times_all?.p95 !== undefined) sums.push(`p95 ${time(own.times_all.p95)}`);
    if (upstream.zombies > 0) sums.push(`${exact(upstream.zombies)} removed with requests in flight`);
    setText(this.sums, sums.join(" · "));
    this.sums.classList.toggle("bad", upstream.problems > 0);
    const may = this.page.mayChange(upstream);
    if (may !== this.actions.isConnected) {
      if (may) this.node.firstChild.append(this.actions);
      else this.actions.remove();
    }
    setText(this.why, this.write && !may ? "static: it has no zone" : "");
    // One scale for the servers of an upstream: their lines can be compared.
    upstream.most = Math.max(1, ...servers.slice(0, this.table.most).flatMap((row) => row.own?.history?.requests ?? []));
    const { sort, falling } = this.page.state;
    this.table.mark(sort, falling);
    this.table.update(servers, asked);
    const { experiment } = upstream;
    this.compare.disabled = experiment?.state === "running";
    this.experiment.upstream = upstream;
    if (experiment) this.experiment.update(experiment);
    if (!experiment) this.experiment.node.remove();
    else if (!this.experiment.node.isConnected) this.node.append(this.experiment.node);
    const shadows = own.shadows ?? [];
    this.shadows.update(shadows);
    if (shadows.length > 0 && !this.shadows.node.isConnected) this.node.append(this.shadows.node);
    if (shadows.length === 0) this.shadows.node.remove();
  }
}

class UpstreamsView {
  constructor(page) {
    this.page = page;
    this.sections = new Map();
    this.most = FIRST_UPSTREAMS;
    this.more = button("", () => {
      this.most += FIRST_UPSTREAMS;
      this.update(true);
    }, "quiet more");
    this.empty = el("p", { class: "empty" });
    this.list = el("div", { class: "upstreams" });
    this.node = el("div", {}, this.list, this.empty, this.more);
  }

  update(asked) {
    const { page } = this;
    const found = [];
    for (const upstream of page.source.upstreams) {
      const servers = page.chosen(upstream);
      if (servers.length > 0 || (!page.isFiltered() && upstream.servers.length === 0)) found.push({ upstream, servers });
    }
    if (page.state.first) found.sort((a, b) => (b.upstream.problems > 0) - (a.upstream.problems > 0));
    const shown = found.slice(0, this.most);
    const present = new Set(shown.map(({ upstream }) => upstream.key));
    for (const [key, section] of this.sections) {
      if (present.has(key) && section.write === page.source.write) continue;
      section.node.remove();
      this.sections.delete(key);
    }
    let before = null;
    for (const { upstream, servers } of shown) {
      let section = this.sections.get(upstream.key);
      if (!section) {
        section = new UpstreamSection(page, upstream);
        this.sections.set(upstream.key, section);
      }
      const next = before ? before.nextSibling : this.list.firstChild;
      const holds = !asked && section.node.isConnected && (this.list.matches(":hover") || this.list.contains(document.activeElement));
      if (section.node !== next && !holds) this.list.insertBefore(section.node, next);
      before = section.node;
      section.update(upstream, servers, asked);
    }
    this.more.hidden = found.length <= this.most;
    setText(this.more, `Show more upstreams (${exact(found.length - shown.length)} not shown)`);
    const none = page.isFiltered() ? "No server matches the filter." : "The configuration has no upstream.";
    setText(this.empty, found.length > 0 || !page.source.total ? "" : none);
  }
}
