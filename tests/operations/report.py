"""The verdict on a day, its page and its picture."""

import collections
import json
import os
import platform
import signal
import statistics
import subprocess
import time

import picture
from support.balancer import binary, wait_for

# The quiet hours that are compared: after the last process has started and warmed up, and at the end. The load of both
# is that of the curve, which is the same on both sides of two in the afternoon.
EARLY, LATE = (5.0, 6.4), (21.6, 23.0)
# In a shorter day, the connections of the busy hours are still open in the quiet ones.
COMPARABLE = 5
# What the allocator keeps for itself may differ between two quiet hours.
SLACK = 6 << 20


def judge(farm, ledger, load, rows, given):
    """Everything that the page says, as data."""
    unexplained = ledger.judge()
    carried_out = farm.carried_out()
    twice = sorted(ident for ident, count in carried_out.items() if count > 1)
    missing = sorted(ledger.posts - carried_out.keys())
    memory, descriptors = (compare(rows, what) if given.minutes >= COMPARABLE else None for what in ("memory", "descriptors"))
    failed = [f"{event.name}: {event.failed}" for event in ledger.events if event.failed]
    problems = [*failed]
    if unexplained:
        problems.append(f"{len(unexplained)} requests were lost that need not be")
    if twice:
        problems.append(f"{len(twice)} POSTs were carried out twice: {twice[:5]}")
    if missing:
        problems.append(f"{len(missing)} POSTs were answered and not carried out: {missing[:5]}")
    if memory and memory["late"] > memory["early"] + SLACK:
        problems.append(f"memory has grown: {memory}")
    if descriptors and descriptors["late"] > descriptors["early"] * 1.5 + 20:
        problems.append(f"descriptors have grown: {descriptors}")
    return {
        "verdict": {"passed": not problems, "problems": problems, "memory": memory, "descriptors": descriptors},
        "minutes": given.minutes, "peak": given.peak,
        "kinds": {kind: {"sent": count, "answered": ledger.answered.get(kind, 0)} for kind, count in sorted(ledger.sent.items())},
        "events": [{"hour": round(event.hour, 2), "name": event.name, "detail": event.failed or event.detail,
                    "seconds": round(event.ended - event.began, 1), "requests": event.requests, "lost": event.lost}
                   for event in ledger.events],
        "unexplained": [{"id": sent.id, "hour": round((sent.ended - ledger.start) / given.minutes * HOUR, 3),
                         "took": round(sent.ended - sent.began, 3), "server": sent.server, "problem": sent.problem}
                        for sent in unexplained],
        "posts": {"answered": len(ledger.posts), "carried out": sum(name.startswith(("post", "upload")) for name in carried_out),
                  "twice": len(twice)},
        "closed_idle": load.closed_idle,
        "rows": rows,
        "complaints": [[level, text, count] for (level, text), count in
                       collections.Counter(farm.complaints()).most_common(30)],
    }


# Hours of the day in a second of a day that takes a minute.
HOUR = 24 / 60


def compare(rows, what):
    """The medians of a value in the two quiet hours; nothing if the process was another one."""
    early = [row for row in rows if EARLY[0] <= row["hour"] < EARLY[1]]
    late = [row for row in rows if LATE[0] <= row["hour"] < LATE[1]]
    if not early or not late or {row["worker"] for row in early + late} != {late[-1]["worker"]}:
        return None
    return {"early": statistics.median(row[what] for row in early), "late": statistics.median(row[what] for row in late)}


def end(farm):
    """QUIT, with nothing in flight: all processes end."""
    farm.one.notify(signal.SIGQUIT)
    began = time.monotonic()
    wait_for(lambda: not farm.processes(), 60, "the end")
    return round(time.monotonic() - began, 1)


def environment():
    done = subprocess.run([binary(), "-V"], capture_output=True, text=True)
    version = (done.stdout + done.stderr).splitlines()[0]
    return {"program": version, "system": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
            "load average at the end": round(os.getloadavg()[2], 1)}


def write(directory, result):
    """README.md, day.svg and the data."""
    directory.mkdir(parents=True, exist_ok=True)
    result["environment"] = environment()
    (directory / "day.json").write_text(json.dumps({**result, "rows": None}, indent=1) + "\n")
    columns = list(result["rows"][0])
    lines = ["\t".join(columns), *("\t".join(str(row[name]) for name in columns) for row in result["rows"])]
    (directory / "samples.tsv").write_text("\n".join(lines) + "\n")
    (directory / "day.svg").write_text(picture.draw(result))
    (directory / "README.md").write_text(page(result))


def page(result):
    verdict, kinds = result["verdict"], result["kinds"]
    sent = sum(kind["sent"] for kind in kinds.values())
    answered = sum(kind["answered"] for kind in kinds.values())
    lost = sum(sum(event["lost"].values()) for event in result["events"])
    unexplained = len(result["unexplained"])
    text = [
        "# A day of operations", "",
        f"24 hours of operations in {result['minutes']:g} minutes, on real processes: {sent:,} requests, messages and datagrams, "
        f"of which {answered:,} were answered by the right server with the right content. {lost:,} were lost in events in which no "
        f"balancer can prevent it (the classes are below), and {unexplained:,} that need not be.", "",
        "**" + ("Passed." if verdict["passed"] else "Failed: " + "; ".join(verdict["problems"])) + "**", "",
        "![load, requests in flight, memory and descriptors over the day](day.svg)", "",
        "## What was sent", "",
        "| kind | sent | answered | lost |", "|---|--:|--:|--:|",
        *(f"| {EXPLAINED[kind]} | {row['sent']:,} | {row['answered']:,} | {row['sent'] - row['answered']:,} |"
          for kind, row in kinds.items()), "",
        f"Clients repeat nothing: a connection that ends under a request counts as lost. {result['closed_idle']:,} kept connections were "
        "closed between two requests. "
        f"{result['posts']['answered']:,} POSTs were answered; {result['posts']['twice']:,} were carried out twice.", "",
        "## What happened", "",
        "| hour | event | what was done | requests in the window | lost |", "|--:|---|---|--:|---|",
        *(f"| {clock(event['hour'])} | {event['name']} | {event['detail']} | {event['requests']:,} | "
          f"{'; '.join(f'{count} {name}' for name, count in event['lost'].items()) or 'none'} |" for event in result["events"]), "",
    ]
    if unexplained:
        text += ["## Lost without need", "", "| hour | id | server | seconds | problem |", "|--:|---|---|--:|---|",
                 *(f"| {clock(one['hour'])} | {one['id']} | {one['server']} | {one['took']} | {one['problem']} |"
                   for one in result["unexplained"][:50]), ""]
    text += ["## Memory and descriptors", ""]
    if verdict["memory"]:
        memory, descriptors = verdict["memory"], verdict["descriptors"]
        text += [f"The worker process that started at the upgrade served until the end. In the quiet hours at {EARLY[0]:g} and "
                 f"{LATE[0]:g} o'clock, which have about the same load, it had {memory['early'] / 2**20:.1f} and "
                 f"{memory['late'] / 2**20:.1f} MiB of resident memory, and {descriptors['early']:g} and {descriptors['late']:g} "
                 "descriptors (medians).", ""]
    else:
        text += ["The day was too short to compare two quiet hours.", ""]
    text += ["## Method", "",
             "- `tests/operations/day.py` starts the balancer with two worker threads, four to six servers, a name server and the clients "
             "in a network namespace of their own. The logs and temporary files are on a file system of 256 MiB, which one event fills.",
             "- The load is open: requests are sent at a rate that follows the hour, whether or not answers come; at most "
             f"{result['peak']:g} a second. Some take 100 to 800 ms at the server, so that there are always requests in flight.",
             "- Every request has an id, which the server sends back with its own name and a digest of the body. The servers keep a journal "
             "of POSTs.",
             "- A loss belongs to an event if it falls into its window and the rule of one of its classes in `timetable.py` holds: for "
             "instance, its connection was open when its process was killed. Everything else is a defect.",
             "- Times are not measured: the machine was shared with builds and other tests, which took most of its two processors.", "",
             "| fact | value |", "|---|---|",
             *(f"| {name} | {value} |" for name, value in result["environment"].items()),
             f"| end | {result['ended']} s from QUIT to the end of the last process |", "",
             "What the error log says, with numbers replaced by N:", "",
             "| count | level | message |", "|--:|---|---|",
             *(f"| {count:,} | {level} | {message.replace('|', '/')} |" for level, message, count in result["complaints"]), "",
             f"`make day ARGS=\"--minutes {result['minutes']:g} --peak {result['peak']:g}\"` repeats it.", ""]
    return "\n".join(text)


EXPLAINED = {
    "kept": "GET on kept connections", "new": "GET, each on a new connection", "name": "GET to servers of a name in DNS",
    "post": "POST on kept connections", "upload": "POST of 300 kB, which needs a temporary file", "tls": "GET, each with a handshake of TLS",
    "http2": "GET by HTTP/2 over TLS", "websocket": "messages in WebSockets", "line": "lines in sessions of TCP",
    "datagram": "datagrams by UDP",
}


def clock(hour):
    return f"{int(hour):02}:{int(hour % 1 * 60):02}"
