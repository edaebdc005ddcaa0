"""The picture of a day: load, requests in flight, memory and descriptors over its hours, with the events."""

WIDTH, LEFT, RIGHT = 900, 70, 25
PANEL, GAP, TOP = 130, 36, 30
STYLE = """
.day{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif;font-size:12px}
.day .paper{fill:#fff}.day text{fill:#1d2630}.day text.quiet{fill:#56616d}
.day .grid{stroke:#dfe5eb}.day .event{stroke:#c4500c;stroke-dasharray:2 3;stroke-width:.8}
.day .line{fill:none;stroke:#0067b1;stroke-width:1.6}
@media (prefers-color-scheme:dark){.day .paper{fill:#14181d}.day text{fill:#e3e8ee}.day text.quiet{fill:#9aa5b1}
.day .grid{stroke:#2b333c}.day .line{stroke:#5fb0f0}.day .event{stroke:#f0935f}}
"""


def series(rows):
    """Title and points of each panel."""
    rates = [(row["hour"], (row["answered"] - before["answered"]) / max(row["hour"] - before["hour"], 1e-9))
             for before, row in zip(rows, rows[1:])]
    return [("answers in an hour", rates),
            ("requests in flight at the clients", [(row["hour"], row["in_flight"]) for row in rows]),
            ("resident memory of the worker process, MiB", [(row["hour"], row["memory"] / 2**20) for row in rows if row["memory"]]),
            ("descriptors of the worker process", [(row["hour"], row["descriptors"]) for row in rows if row["descriptors"]])]


def round_up(value):
    """The next number of the form 1, 2 or 5 times a power of ten."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= value:
                return factor * step
        step *= 10


def draw(result):
    panels = series(result["rows"])
    height = TOP + len(panels) * (PANEL + GAP) + 10
    x = lambda hour: LEFT + (WIDTH - LEFT - RIGHT) * min(hour, 24) / 24  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" class="day" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
           "<title>A day of operations: load, requests in flight, memory and descriptors</title>",
           f"<style>{STYLE}</style>", f'<rect class="paper" width="{WIDTH}" height="{height}"/>']
    for number, (title, points) in enumerate(panels):
        top = TOP + number * (PANEL + GAP)
        most = round_up(max((value for _, value in points), default=1) or 1)
        y = lambda value, top=top, most=most: top + PANEL * (1 - value / most)  # noqa: E731
        out.append(f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{title}</text>')
        for part in range(3):
            value = most * part / 2
            out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
            out.append(f'<text class="quiet" x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
        for event in result["events"]:
            out.append(f'<line class="event" x1="{x(event["hour"]):.1f}" x2="{x(event["hour"]):.1f}" y1="{top}" y2="{top + PANEL}">'
                       f'<title>{event["name"]}</title></line>')
        path = " ".join(f"{x(hour):.1f},{y(value):.1f}" for hour, value in points)
        out.append(f'<polyline class="line" points="{path}"/>')
        for hour in range(0, 25, 3):
            out.append(f'<text class="quiet" x="{x(hour):.1f}" y="{top + PANEL + 14}" text-anchor="middle">{hour}:00</text>')
    return "\n".join([*out, "</svg>", ""])
