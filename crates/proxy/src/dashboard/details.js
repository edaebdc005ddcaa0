// Dialogs: a server in detail, its parameters, and a question before it is removed.

/** A chart of requests and failures over the last quarter of an hour. */
function chart() {
  const requests = sparkline("Requests in steps of 10 s");
  const failures = sparkline("Failures in steps of 10 s");
  failures.node.classList.add("failures");
  const most = el("span");
  const node = el("figure", { class: "chart" },
    el("figcaption", {}, el("span", {}, "Requests and failures (red) in steps of 10 s"), most),
    el("div", { class: "layers" }, requests.node, failures.node),
    el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, "15 min ago"), el("span", {}, "now")));
  const update = (history) => {
    const values = history?.requests ?? [];
    const top = Math.max(1, ...values);
    requests.update(values, top);
    failures.update(history?.failures ?? [], top);
    setText(most, `top: ${number(top / 10)}/s`);
  };
  return { node, update };
}

class DetailsDialog {
  constructor(page) {
    this.page = page;
    this.node = byId("details");
    this.title = el("h2", { id: "details-title" });
    this.actions = el("p", { class: "actions" });
    this.why = el("ul", { class: "why" });
    this.chart = chart();
    this.facts = el("dl", { class: "facts" });
    this.events = el("ol", { class: "latest" });
    this.picks = el("ol", { class: "latest picks" });
    this.noPicks = el("p", { class: "empty" }, "None of the last choices that were looked at.");
    this.noEvents = el("p", { class: "empty" }, "None since the start of the worker process.");
    const close = button("Close", () => this.node.close(), "quiet");
    this.node.append(el("header", {}, this.title, close), this.actions, el("h3", {}, "Why it gets what it gets"), this.why,
      el("h3", {}, "Last choices of this server"), this.picks, this.noPicks, el("h3", {}, "Last 15 minutes"), this.chart.node, el("h3", {}, "Numbers"), this.facts,
      el("h3", {}, "Events"), this.events, this.noEvents);
    this.node.addEventListener("close", () => page.setState({ server: "" }));
    this.pairs = new Map();
  }

  /** Shows the server of the state, if there is one. */
  update() {
    const key = this.page.state.server;
    const server = key && this.page.source.upstreams.flatMap((one) => one.servers).find((one) => one.key === key);
    const picksOf = server ? `${server.upstream.protocol}/upstreams/${encodeURIComponent(server.upstream.name)}` : null;
    if (picksOf !== this.page.source.picksOf) {
      this.page.source.picksOf = picksOf;
      this.page.source.picks = [];
      if (picksOf) this.page.source.soon();
    }
    if (!server) {
      if (this.node.open && !key) this.node.close();
      else if (this.node.open) this.gone();
      return;
    }
    if (!this.node.open) this.node.showModal();
    const { peer, upstream, own } = server;
    setText(this.title, `${peer.server} in ${upstream.name}`);
    this.showActions(server);
    const texts = reasons(server);
    if (texts.join() !== this.shownTexts) {
      this.shownTexts = texts.join();
      this.why.replaceChildren(...texts.map((text) => el("li", {}, text)));
    }
    this.chart.update(own?.history);
    this.showPicks(server);
    this.showFacts(server);
    const events = this.page.source.events.filter((event) => event.server === peer.server && event.upstream === upstream.name);
    showEvents(this.events, events.slice(-20).reverse());
    this.noEvents.hidden = events.length > 0;
  }

  gone() {
    this.actions.replaceChildren();
    this.shownActions = "";
    this.shownTexts = "gone";
    this.why.replaceChildren(el("li", {}, "It is not a server of the upstream any more."));
  }

  showActions(server) {
    const { peer, upstream } = server;
    const may = this.page.mayChange(upstream);
    const shown = may ? `${server.key} ${peer.state}` : "none";
    this.server = server;
    if (shown === this.shownActions) return;
    this.shownActions = shown;
    const focused = this.actions.contains(document.activeElement);
    const act = (text, what) => button(text, () => this.page.change(this.server, what));
    const drain = peer.state === "draining" ? act("Undrain", "undrain") : act("Drain", "drain");
    const down = peer.state === "down" ? act("Up", "up") : act("Down", "down");
    const until = button("Drain with a deadline", () => this.page.drainUntil(this.server));
    const all = [drain, until, down, button("Edit", () => this.page.edit(this.server)), button("Remove", () => this.page.remove(this.server), "danger")];
    this.actions.replaceChildren(...(may ? all : []));
    if (focused) this.actions.querySelector("button")?.focus();
  }

  showPicks({ peer }) {
    const picks = this.page.source.picks.filter((pick) => pick.id === peer.id).slice(0, 12);
    this.noPicks.hidden = picks.length > 0;
    const key = picks.map((pick) => pick.time).join();
    if (key === this.shownPicks) return;
    this.shownPicks = key;
    this.picks.replaceChildren(...picks.map((pick) => {
      const chance = pick.probability === undefined ? "" : `, probability ${percent(pick.probability)}`;
      const next = pick.runner_up ? `, next was ${pick.runner_up.server ?? "a server that has gone"}` : "";
      return el("li", {}, el("time", { datetime: pick.time }, clock(pick.time)), " ",
        `${pick.reason}${pick.score === undefined || pick.reason.includes("next") ? "" : next}${chance}`);
    }));
  }

  showFacts(server) {
    const { peer, upstream, own } = server;
    const times = own?.times ?? {};
    const facts = {
      State: `${peer.state}: ${STATES[peer.state] ?? ""}`,
      Weight: exact(peer.weight),
      "In flight": peer.max_conns ? `${exact(peer.active)} of ${exact(peer.max_conns)}` : exact(peer.active),
      Rate: perSecond(server.rate),
      "Share, by weight": `${percent(server.share)}, ${percent(server.expected)}`,
      [upstream.protocol === "http" ? "Requests" : "Sessions"]: exact(server.count),
      "Failed attempts": exact(peer.fails),
      "Times out of service": exact(peer.unavail),
      "Downtime": duration(peer.downtime),
      "Time to the head, mean": time(server.count > 0 ? (peer.header_time ?? peer.first_byte_time) : null),
      "p50, p90": `${time(times.p50)}, ${time(times.p90)}`,
      "p95, p99": `${time(times.p95)}, ${time(times.p99)}`,
      "p99.9": time(times.p99_9),
      "Received, sent": `${bytes(peer.received)}, ${bytes(peer.sent)}`,
    };
    for (const kind of ["1xx", "2xx", "3xx", "4xx", "5xx"]) {
      if (peer.responses?.[kind] > 0) facts[`Responses ${kind}`] = exact(peer.responses[kind]);
    }
    if (own?.drain) facts["Drains since"] = `${clock(own.drain.since)}, with ${exact(own.drain.begun_with)} in flight then`;
    if (server.secondsLeft !== null) facts["Set down in"] = duration(server.secondsLeft * 1000);
    if (peer.selected) facts["Last request"] = clock(peer.selected);
    showPairs(this.facts, this.pairs, facts);
  }
}

/** Shows names with values in a list; only other values change anything. */
function showPairs(list, pairs, facts) {
  for (const [name, pair] of pairs) {
    if (name in facts) continue;
    pair.parentNode.remove();
    pairs.delete(name);
  }
  for (const [name, text] of Object.entries(facts)) {
    if (!pairs.has(name)) {
      const value = el("dd");
      list.append(el("div", {}, el("dt", {}, name), value));
      pairs.set(name, value);
    }
    setText(pairs.get(name), text);
  }
}

const FIELDS = [
  { name: "server", label: "Address", hint: "IP address with port, or unix:PATH", only: "new", required: true },
  { name: "weight", label: "Weight", type: "number", min: 1, value: 1 },
  { name: "max_conns", label: "Most requests in flight (0: no limit)", type: "number", min: 0, value: 0 },
  { name: "max_fails", label: "Failures until it is out of service", type: "number", min: 0, value: 1 },
  { name: "fail_timeout", label: "Time for failures and out of service", value: "10s" },
  { name: "slow_start", label: "Slow start", value: "0s" },
  { name: "route", label: "Route (sticky)", protocol: "http", value: "" },
  { name: "backup", label: "Backup", type: "checkbox", only: "new" },
  { name: "down", label: "Down", type: "checkbox" },
  { name: "drain", label: "Drain", type: "checkbox", only: "old" },
];

/** A form with the parameters of a server in a dialog. `given` are those of a server that there is; `send` takes what changed. */
function askForServer(title, protocol, given, send) {
  const isNew = !given;
  const inputs = FIELDS.filter((field) => (field.protocol ?? protocol) === protocol && field.only !== (isNew ? "old" : "new"))
    .map((field) => {
      const type = field.type ?? "text";
      const input = el("input", { name: field.name, type, min: field.min, required: field.required, placeholder: field.hint,
        autocomplete: "off", spellcheck: "false" });
      const before = given?.[field.name] ?? field.value ?? (type === "checkbox" ? false : "");
      if (type === "checkbox") input.checked = before;
      else input.value = before;
      return { input, before, type };
    });
  const read = ({ input, type }) => (type === "checkbox" ? input.checked : type === "number" ? input.valueAsNumber : input.value.trim());
  const labels = inputs.map(({ input, type }) => {
    const text = FIELDS.find((field) => field.name === input.name).label;
    return type === "checkbox" ? el("label", { class: "check" }, input, ` ${text}`) : el("label", {}, text, input);
  });
  const submit = async () => {
    const values = {};
    for (const one of inputs) {
      const value = read(one);
      if (value !== one.before && !Number.isNaN(value)) values[one.input.name] = value;
    }
    await send(values);
  };
  askInDialog(title, [el("div", { class: "fields" }, ...labels)], isNew ? "Add" : "Save", "main", submit);
}

/** A dialog with a form; it closes when the action has succeeded, and says why if it has not. */
function askInDialog(title, content, label, kind, action) {
  const dialog = byId("question");
  const problem = el("p", { class: "bad", role: "alert" });
  const accept = el("button", { type: "submit", class: kind }, label);
  const onsubmit = async (event) => {
    event.preventDefault();
    accept.disabled = true;
    problem.textContent = "";
    try {
      await action();
      dialog.close();
    } catch (error) {
      problem.textContent = `${error.message}.`;
    }
    accept.disabled = false;
  };
  dialog.replaceChildren(el("form", { onsubmit }, el("h2", { id: "question-title" }, title), ...content, problem,
    el("p", { class: "actions" }, accept, button("Cancel", () => dialog.close(), "quiet"))));
  dialog.showModal();
}

/** Events as a list, the newest first. */
function showEvents(list, events) {
  const key = `${events[0]?.id} ${events.at(-1)?.id} ${events.length}`;
  if (list.shown === key) return;
  list.shown = key;
  list.replaceChildren(...events.map((event) => {
    const where = [event.upstream, event.server].filter(Boolean).join(" ");
    return el("li", { "data-kind": event.kind }, el("time", { datetime: event.time }, clock(event.time)), " ",
      where === "" ? "" : el("b", {}, where), " ", event.text);
  }));
}
