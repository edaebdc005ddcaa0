// Elements and texts. A text from outside is only ever the text of a node.

const byId = (id) => document.getElementById(id);

/** Makes an element. `on…` are listeners, the other properties are attributes; children are nodes or texts. */
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Changes a text only if it is another one, so that the browser has nothing to do for what stays. */
function setText(node, text) {
  if (node.shown !== text) {
    node.shown = text;
    node.textContent = text;
  }
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) {
    if (value === null) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
}

function button(text, action, kind = "", more = {}) {
  return el("button", { type: "button", class: kind, onclick: action, ...more }, text);
}

const NONE = "–";

/** A number with three digits that count. */
function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (size >= 10 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(1);
}

const exact = (value) => (value ?? 0).toLocaleString("en");

function perSecond(value) {
  return value === null || value === undefined ? NONE : `${number(value)}/s`;
}

function time(millis) {
  if (millis === null || millis === undefined) return NONE;
  if (millis >= 1000) return `${(millis / 1000).toFixed(millis >= 10000 ? 0 : 1)} s`;
  return `${millis >= 10 ? Math.round(millis) : millis.toFixed(millis >= 1 ? 1 : 2)} ms`;
}

function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit > 0 && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function percent(part) {
  if (part === null || part === undefined || Number.isNaN(part)) return NONE;
  const value = part * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** A length of time for people. */
function duration(millis) {
  const seconds = Math.max(0, Math.round(millis / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** The same in its largest unit. */
function age(millis) {
  const [size, unit] = [[86400e3, "d"], [3600e3, "h"], [60e3, "min"], [1e3, "s"]].find(([size]) => millis >= size) ?? [1e3, "s"];
  return `${Math.floor(millis / size)} ${unit}`;
}

const clock = (date) => new Date(date).toLocaleTimeString("en-GB");

/** A line over its area, for a row of values; `update` draws other values. */
function sparkline(label) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const node = svg("svg", { class: "spark", viewBox: "0 0 90 24", preserveAspectRatio: "none", role: "img",
    "aria-label": `${label}: none` }, area, line);
  let drawn = "";
  const update = (values, most) => {
    const key = values ? values.join() : "";
    if (key === drawn) return;
    drawn = key;
    const top = most || Math.max(1, ...values);
    const from = 90 - values.length;
    const points = values.map((value, nth) => `${from + nth + 0.5} ${(23 - (Math.min(value, top) / top) * 21).toFixed(1)}`);
    line.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
    area.setAttribute("d", points.length > 1 ? `M${from + 0.5} 24L${points.join("L")}L89.5 24Z` : "");
    const last = values.length > 0 ? number(values[values.length - 1]) : "none";
    node.setAttribute("aria-label", `${label}: now ${last}, at most ${number(Math.max(0, ...values))}`);
  };
  return { node, update };
}

/** Says something to people and to screen readers. */
function say(text, kind = "") {
  const notice = byId("notice");
  notice.className = `notice ${kind}`;
  notice.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (notice.textContent = ""), kind === "bad" ? 12000 : 5000);
}
