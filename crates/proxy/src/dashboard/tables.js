// Tables that change only where a value has changed.

/** The first rows that are shown; more on demand. */
const FIRST_ROWS = 60;
const MORE_ROWS = 200;

/**
 * A table. A column has `key`, `label`, and either `text(row)` or `make(td)`, which returns a function that shows a row;
 * `value(row)` is what it is sorted by.
 */
class Table {
  constructor(columns, caption, options = {}) {
    this.columns = columns;
    this.options = options;
    this.rows = new Map();
    this.most = FIRST_ROWS;
    this.heads = columns.map((column) => this.head(column));
    this.body = el("tbody");
    this.more = button("", () => this.showMore(), "quiet more");
    this.more.hidden = true;
    this.table = el("table", {}, el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    this.node = el("div", { class: "table" }, this.table, this.more);
  }

  head(column) {
    const sortable = column.value && this.options.sort;
    const label = sortable
      ? button(column.label, () => this.options.sort(column), "sort", { title: column.hint ?? "" })
      : el("span", { title: column.hint ?? "" }, column.label);
    return el("th", { scope: "col", class: column.kind ?? "" }, label);
  }

  /** Marks the column that rows are sorted by. */
  mark(key, falling) {
    this.columns.forEach((column, nth) => {
      setAttribute(this.heads[nth], "aria-sort", column.key === key ? (falling ? "descending" : "ascending") : null);
    });
  }

  showMore() {
    this.most += MORE_ROWS;
    this.update(this.last, true);
  }

  /** Shows these rows in this order. While the pointer or the focus is in the table, no row changes its place by itself. */
  update(list, asked = false) {
    this.last = list;
    const holds = !asked && (this.table.matches(":hover") || this.body.contains(document.activeElement));
    if (holds) list = [...list.filter((row) => this.rows.has(row.key)), ...list.filter((row) => !this.rows.has(row.key))];
    const shown = list.slice(0, this.most);
    const present = new Set(shown.map((row) => row.key));
    for (const [key, row] of this.rows) {
      if (present.has(key)) continue;
      row.tr.remove();
      this.rows.delete(key);
    }
    let before = null;
    for (const row of shown) {
      let known = this.rows.get(row.key);
      const isNew = !known;
      if (isNew) {
        known = this.row(row.key);
        this.rows.set(row.key, known);
      }
      known.update(row);
      const next = before ? before.nextSibling : this.body.firstChild;
      if (known.tr !== next && (isNew || !holds)) this.body.insertBefore(known.tr, next);
      before = known.tr;
    }
    this.more.hidden = list.length <= this.most;
    setText(this.more, `Show more (${exact(list.length - shown.length)} not shown)`);
  }

  row(key) {
    const tr = el("tr", { "data-key": key });
    const updates = this.columns.map((column, nth) => {
      const td = el(nth === 0 && this.options.rowHead ? "th" : "td", { class: column.kind ?? "" });
      if (nth === 0 && this.options.rowHead) td.setAttribute("scope", "row");
      tr.append(td);
      return column.make ? column.make(td) : (row) => setText(td, column.text(row));
    });
    const update = (row) => {
      for (const one of updates) one(row);
      if (this.options.mark) setAttribute(tr, "class", this.options.mark(row));
    };
    return { tr, update };
  }
}

/** Sorts by a column; rows that are equal stay in their order. Missing values come last. */
function sorted(rows, value, falling) {
  const order = falling ? -1 : 1;
  return rows.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    const missing = (one) => one === null || one === undefined || Number.isNaN(one);
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    return order * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  });
}
