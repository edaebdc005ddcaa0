// What the shadows of an upstream would have chosen.

/** One line: the numbers of a shadow in words. The shares of the servers are in the title. */
function shadowText(one) {
  const texts = [`agrees in ${percent(one.agreement)} of ${exact(one.picks)} choices`];
  if (one.deviation.shadow !== null) {
    texts.push(`at most ${percent(one.deviation.shadow)} off the weights (really ${percent(one.deviation.real)})`);
  }
  if (one.keys?.picks > 0) texts.push(`keys moved ${exact(one.keys.moved)} of ${exact(one.keys.picks)}`);
  if (one.sessions?.picks > 0) texts.push(`sessions left ${exact(one.sessions.left)} of ${exact(one.sessions.picks)}`);
  if (one.nobody > 0) texts.push(`no server ${exact(one.nobody)}`);
  if (one.cost.mean_ns !== null) texts.push(`${exact(one.cost.mean_ns)} ns a choice`);
  return texts.join(" · ");
}

/** The shadows of an upstream, below its servers. */
class ShadowsPart {
  constructor() {
    this.list = el("ul");
    this.rows = new Map();
    this.node = el("div", { class: "shadows" },
      el("p", {}, "Shadows: what other methods would have chosen. They say nothing about response times."), this.list);
  }

  update(shadows) {
    const names = new Set(shadows.map(({ name }) => name));
    for (const [name, row] of this.rows) {
      if (names.has(name)) continue;
      row.node.remove();
      this.rows.delete(name);
    }
    for (const one of shadows) {
      let row = this.rows.get(one.name);
      if (!row) {
        row = { text: el("span") };
        row.node = el("li", {}, el("b", {}, one.name), " ", row.text);
        this.rows.set(one.name, row);
        this.list.append(row.node);
      }
      setText(row.text, shadowText(one));
      const share = (server) => `${server.server}: ${percent(server.shadow_share)}, really ${percent(server.real_share)}`;
      setAttribute(row.node, "title", [one.shadow, ...one.servers.slice(0, 20).map(share)].join("\n"));
    }
  }
}
