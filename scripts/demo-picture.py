#!/usr/bin/env python3
"""Draws docs/demo.svg: the last frame of real runs of `balanza demo`, one for each algorithm, as a terminal shows it.

    scripts/demo-picture.py [path to balanza]
"""

import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
import fcntl
import termios
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/balanza")
RUNS = (("round_robin", 18080), ("least_conn", 18180))
LOAD = 360
SECONDS = 20.5

WIDTH, CHAR, LINE, LEFT, TOP = 860, 9.03, 24, 30, 58
BACKGROUND, BAR_TOP, TEXT, DIM, STRONG, PROMPT = "#11161d", "#1b222c", "#c9d4e0", "#7f8c9b", "#f3f7fb", "#5fd7a7"
BARS = {"s1": "#5fd7a7", "s2": "#6cb6ff", "s3": "#f0a35e"}


def last_frame(algorithm, port):
    """Runs the demo on a terminal of its own and returns the last table that it drew, line by line."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 110, 0, 0))
    command = [PROGRAM, "demo", "--algorithm", algorithm, "--load", str(LOAD), "--port", str(port)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    output, end = b"", time.monotonic() + SECONDS
    os.set_blocking(master, False)
    while process.poll() is None:
        if time.monotonic() > end:
            process.send_signal(signal.SIGINT)
            end = float("inf")
        try:
            output += os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            break
    process.wait()
    frames = output.decode().split("\x1b[?7l")
    if len(frames) < 2:
        sys.exit(output.decode())
    table = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", frames[-1].split("\x1b[?7h")[0])
    return [line.rstrip() for line in table.replace("\r", "").split("\n") if line.strip()]


def text(row, column, content, color, weight=400):
    x, y = LEFT + column * CHAR, TOP + row * LINE
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-weight="{weight}" '
            f'textLength="{len(content) * CHAR:.1f}" xml:space="preserve">{escape(content)}</text>')


def server_line(row, line):
    """A row of the table; its bar is drawn, as block characters differ between fonts."""
    match = re.match(r"(.*?%  )([█▏▎▍▌▋▊▉]*)(.*)$", line)
    before, bar, after = match.groups()
    cells = bar.count("█") + (("▏▎▍▌▋▊▉".index(bar[-1]) + 1) / 8 if bar and bar[-1] != "█" else 0)
    name = before.split()[0]
    parts = [text(row, 0, before.rstrip(), TEXT)]
    parts.append(f'<rect x="{LEFT + len(before) * CHAR:.1f}" y="{TOP + row * LINE - 13:.1f}" '
                 f'width="{cells * CHAR:.1f}" height="16" rx="2" fill="{BARS.get(name, TEXT)}"/>')
    for word in re.finditer(r"\S+( ms)?", after):
        slow = word[0].endswith(" ms") and int(word[0].split()[0]) >= 1000
        parts.append(text(row, len(before) + len(bar) + word.start(), word[0], "#ff7b72" if slow else STRONG))
    return parts


def main():
    row, body = 0, []
    for algorithm, port in RUNS:
        lines = last_frame(algorithm, port)
        print("\n".join(lines))
        body.append(text(row, 0, "$", PROMPT, 700))
        body.append(text(row, 2, f"balanza demo --algorithm {algorithm} --load {LOAD}", STRONG, 700))
        row += 1.4
        body.append(text(row, 0, lines[0].rstrip(), DIM))
        for line in lines[1:-1]:
            row += 1
            body += server_line(row, line)
        row += 1
        body.append(text(row, 0, lines[-1], DIM))
        row += 1.9
    height = TOP + (row - 1.9) * LINE + 24
    dots = "".join(f'<circle cx="{20 + 18 * n}" cy="17" r="5.5" fill="{color}"/>'
                   for n, color in enumerate(("#ff5f57", "#febc2e", "#28c840")))
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img">
<title>Two runs of the demo: three servers of different speed under round robin and under least_conn</title>
<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="{BACKGROUND}"/>
<path d="M0 34V10A10 10 0 0 1 10 0H{WIDTH - 10}A10 10 0 0 1 {WIDTH} 10V34Z" fill="{BAR_TOP}"/>
{dots}
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="15">
""" + "\n".join(body) + "\n</g>\n</svg>\n"
    (ROOT / "docs/demo.svg").write_text(svg)


main()
