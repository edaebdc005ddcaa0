"""The tables, for the terminal and as Markdown."""

from . import plan
from .summary import PLACES, ratio

NOTHING = "–"


def tables(summary, memory, verdicts, unit):
    """(title, header, rows) of every table that has something to show."""
    result = []
    for place, where in PLACES.items():
        if place not in summary:
            continue
        loads = [load for load in plan.LOADS if load.name in summary[place]]
        plain = [load for load in loads if not load.many_uris]
        what = "instructions" if unit == "cycles" else unit
        for title, systems, field in (
            (f"{unit} per request, defaults", plan.DEFAULTS, "total"),
            (f"{unit} per request, tuned", plan.TUNED, "total"),
            (f"{what} per request, defaults", plan.DEFAULTS, "instructions"),
            (f"{what} per request, tuned", plan.TUNED, "instructions"),
        ):
            rows = [cost_row(summary, place, load, systems, field) for load in plain]
            references = [f"balanza / {name}" for name in systems[1:]]
            if any(cell != NOTHING for row in rows for cell in row[1:]):
                result.append((f"{title} ({where})", ["", *systems, *references], rows))
        many = [load for load in loads if load.many_uris]
        rows = [row for load in many for row in many_rows(summary, place, load)]
        if rows:
            header = ["algorithm", "system", f"n = {plan.FEW}", f"n = {plan.MANY:,}", "ratio"]
            result.append((f"{unit} per request by number of servers ({where})", header, rows))
        idle = summary[place].get(plan.IDLE_NAME, {})
        if idle:
            header = ["system", "p50, ms", "p99, ms", "requests/s"]
            rows = [idle_row(name, idle[name]) for name in plan.IDLE_SYSTEMS if name in idle]
            result.append((f"active requests beside {plan.IDLE:,} idle connections ({where})", header, rows))
    if memory:
        header = ["system", "bytes for each connection", "whole, MiB"]
        rows = [[name, f"{memory[name][0]:,.0f}", f"{memory[name][1] / 2**20:.1f}"] for name in memory]
        result.append((f"resident memory with {plan.IDLE:,} idle connections", header, rows))
    if verdicts:
        header = ["budget", "cores", "limit", "measured", ""]
        result.append(("budgets", header, [budget_row(entry) for entry in verdicts]))
    return result


def cost_row(summary, place, load, systems, field):
    values = summary[place][load.name]
    costs = [number(values.get(system, {}).get(field)) for system in systems]
    shares = [factor(ratio(summary, place, load.name, systems[0], other, field)) for other in systems[1:]]
    return [load.title, *costs, *shares]


def many_rows(summary, place, load):
    values = summary[place][load.name]
    for system in ("balanza", "nginx"):
        few, many = f"{system} n={plan.FEW}", f"{system} n={plan.MANY}"
        if few in values and many in values:
            costs = [number(values[key]["total"]) for key in (few, many)]
            yield [load.title, system, *costs, factor(ratio(summary, place, load.name, many, few))]


def idle_row(name, values):
    times = [f"{values[field] / 1000:.2f}" for field in ("p50_us", "p99_us")]
    return [name, *times, number(values["per_second"])]


def budget_row(entry):
    decimals = 0 if entry["limit"] > 100 else 2
    measured = NOTHING if entry["measured"] is None else f"{entry['measured']:,.{decimals}f}"
    return [entry["budget"], entry["place"], f"{entry['limit']:,.{decimals}f}", measured, entry["verdict"]]


def number(value):
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def factor(value):
    return NOTHING if value is None else f"{value:.2f}"


def as_text(title, header, rows):
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [title, "  ".join("-" * width for width in widths)]
    for row in [header, *rows]:
        cells = [cell.rjust(width) if is_figure(cell, row is header) else cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def is_figure(cell, in_header):
    return not in_header and (cell == NOTHING or cell.replace(",", "").replace(".", "").replace("-", "").isdigit())


def as_markdown(title, header, rows):
    figures = [all(is_figure(row[column], False) for row in rows) for column in range(len(header))]
    lines = [f"### {title[0].upper()}{title[1:]}", "", f"| {' | '.join(header)} |"]
    lines.append("|" + "|".join("---:" if figure else "---" for figure in figures) + "|")
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
