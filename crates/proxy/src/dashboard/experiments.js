// The experiment of an upstream: its arms in alternation, and what follows so far.

const VERDICTS = {
  too_few_rounds: "too few rounds to tell",
  carry_over: "carry-over: blocks and washout are too short",
  better: "better",
  worse: "worse",
  mixed: "better in one, worse in another",
  no_difference: "no difference shown",
};
const PHASE_NAMES = { washout: "washout", first: "first half", second: "second half" };

/** A difference with its interval, times in milliseconds. */
function effectText(name, effect, show) {
  if (!effect) return "";
  const signed = (value) => `${value < 0 ? "−" : "+"}${show(Math.abs(value))}`;
  const interval = effect.interval ? ` (${effect.interval.map(signed).join(" to ")})` : "";
  return `${name} ${signed(effect.mean)}${interval}`;
}

/** What an experiment does now, or how it has ended. */
function experimentState(one) {
  if (one.now) {
    const { block, phase, seconds_left: left } = one.now;
    return `block ${exact(block + 1)} of ${exact(one.blocks.planned)}, ${PHASE_NAMES[phase]}, ${countdown(Math.ceil(left))} left`;
  }
  if (one.state === "ready") return "not started";
  return one.ended ? `${one.state === "completed" ? "completed" : "ended"}: ${one.ended.reason}` : one.state;
}

function armText(arm) {
  if (arm.requests === 0) return "nothing measured yet";
  const failed = `${percent(arm.failed / arm.requests)} failed`;
  return [`${exact(arm.blocks)} blocks`, `${exact(arm.requests)} requests`, failed, `mean ${time(arm.mean)}`, `p99 ${time(arm.p99)}`].join(" · ");
}

function comparisonText(one) {
  const points = (value) => `${number(value * 100)} points`;
  const texts = [effectText("mean", one.mean, time), effectText("p99", one.p99, time), effectText("errors", one.errors, points)];
  return `${VERDICTS[one.verdict] ?? one.verdict}; ${texts.filter(Boolean).join(", ")}`;
}

/** The experiment of an upstream, below its servers. */
class ExperimentPart {
  constructor(page, upstream) {
    this.page = page;
    this.upstream = upstream;
    this.state = el("span");
    this.stop = button("Stop", () => page.stopExperiment(this.upstream), "small", { "aria-label": `Stop the experiment of ${upstream.name}` });
    this.list = el("ul");
    this.rows = new Map();
    this.note = el("p");
    this.node = el("div", { class: "shadows experiment" },
      el("p", {}, el("b", {}, "Experiment"), " ", this.state, " ", this.stop), this.list, this.note);
  }

  update(one) {
    setText(this.state, experimentState(one));
    this.stop.hidden = one.state !== "running" || !this.page.mayChange(this.upstream);
    const names = one.arms.map(({ name }) => name).join("\n");
    if (names !== this.shownNames) {
      this.shownNames = names;
      this.rows.clear();
      this.list.replaceChildren(...one.arms.map(({ name }) => {
        const row = { mark: el("span", { class: "tag" }), text: el("span"), comparison: el("div") };
        this.rows.set(name, row);
        row.node = el("li", {}, el("b", {}, name), " ", row.mark, " ", row.text, row.comparison);
        return row.node;
      }));
    }
    const compared = new Map((one.analysis ?? []).map((comparison) => [comparison.arm, comparison]));
    one.arms.forEach((arm, nth) => {
      const row = this.rows.get(arm.name);
      const marks = [nth === 0 ? "control" : "", one.now?.arm === arm.name ? "runs now" : ""].filter(Boolean).join(", ");
      setText(row.mark, marks);
      row.mark.hidden = marks === "";
      setText(row.text, armText(arm));
      const comparison = compared.get(arm.name);
      setText(row.comparison, comparison?.rounds > 0 ? comparisonText(comparison) : "");
    });
    const shown = one.analysis?.some(({ rounds }) => rounds > 0);
    setText(this.note, shown ? "Differences to the control by rounds, with intervals that hold together with 99 %." : "");
  }
}

const EXPERIMENT_FIELDS = [
  { name: "block", label: "Block", value: "60s" },
  { name: "washout", label: "Washout, does not count", value: "" },
  { name: "rounds", label: "Rounds", type: "number", min: 1, value: 30 },
  { name: "errors", label: "Guard: failed requests, as in 5%", value: "" },
  { name: "p99", label: "Guard: p99, as in 500ms", value: "" },
  { name: "full", label: "Guard: max_conns in use, as in 90%", value: "" },
];

/** Asks for the arms of an experiment and begins it. `known` is the last one, or that of the configuration. */
async function askForExperiment(page, upstream, known) {
  const { own, name } = upstream;
  const methods = await page.knownMethods();
  const before = known?.settings ?? {};
  const arms = el("textarea", { name: "arms", rows: 3, required: true, autocomplete: "off", spellcheck: "false" });
  arms.value = (known?.arms ?? []).slice(1).map((arm) => arm.name).join("\n");
  const choose = el("select", { "aria-label": "Add a method", onchange: () => {
    if (choose.value) arms.value = [arms.value.trim(), choose.value].filter(Boolean).join("\n");
    choose.value = "";
  } }, el("option", { value: "" }, "Add a method"), ...methods.map((value) => el("option", { value }, value)));
  const inputs = EXPERIMENT_FIELDS.map(({ name: field, type = "text", min, value }) => {
    const input = el("input", { name: field, type, min, autocomplete: "off", spellcheck: "false" });
    input.value = before[field] ?? value;
    return input;
  });
  const labels = inputs.map((input, nth) => el("label", {}, EXPERIMENT_FIELDS[nth].label, input));
  const control = known?.state === "running" ? known.arms[0].name : own.method;
  const text = `These methods and ${control} take turns in blocks of time, each with all requests. A guard that is exceeded ends it.`;
  const content = [el("p", {}, text), el("div", { class: "fields" }, el("label", {}, "Arms, one a line", arms), choose, ...labels)];
  askInDialog(`Experiment in ${name}`, content, "Begin", "main", async () => {
    const value = { arms: arms.value.split("\n").map((line) => line.trim()).filter(Boolean) };
    for (const input of inputs) {
      if (input.value.trim() !== "") value[input.name] = input.type === "number" ? input.valueAsNumber : input.value.trim();
    }
    await page.source.ask("POST", page.experimentPath(upstream), value);
    say(`The experiment of ${name} begins.`, "good");
    page.source.soon(true);
  });
}
