#!/usr/bin/env python3
"""Draws docs/demo.svg: the last frame of a real run of `balanza demo` with two algorithms, as a terminal shows it.

    scripts/demo-picture.py [path to balanza]
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/balanza")
ARGUMENTS = ["--load", "360", "--versus", "least_conn"]
PORT = "18080"
SECONDS = 20.5
COLUMNS = 100

CHAR, LINE, LEFT, TOP = 8.6, 23, 24, 62
WIDTH = round(2 * LEFT + COLUMNS * CHAR)
BACKGROUND, BAR_TOP, TEXT, DIM, STRONG, PROMPT = "#11161d", "#1b222c", "#c9d4e0", "#7f8c9b", "#f3f7fb", "#5fd7a7"
# Of the parameters of an escape sequence.
COLOURS = {"1": STRONG, "2": DIM, "31": "#ff7b72", "32": "#5fd7a7", "33": "#f0a35e", "34": "#6cb6ff", "35": "#d2a8ff",
           "36": "#56d4dd"}
EIGHTHS = "▏▎▍▌▋▊▉█"


def last_frame():
    """Runs the demo on a terminal of its own and returns the last frame that it drew, line by line, with its colours."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = subprocess.Popen([PROGRAM, "demo", "--port", PORT, *ARGUMENTS], stdin=subprocess.DEVNULL, stdout=terminal,
                               stderr=terminal, start_new_session=True)
    os.close(terminal)
    output, end = b"", time.monotonic() + SECONDS
    os.set_blocking(screen, False)
    while process.poll() is None:
        if time.monotonic() > end:
            process.send_signal(signal.SIGINT)
            end = float("inf")
        try:
            output += os.read(screen, 65536)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            break
    process.wait()
    try:
        while piece := os.read(screen, 65536):
            output += piece
    except OSError:  # All has been read.
        pass
    frames = output.decode(errors="replace").split("\x1b[?7l")
    if len(frames) < 2:
        sys.exit(output.decode())
    frame = frames[-1].split("\x1b[J")[0].replace("\x1b[K", "").replace("\r", "")
    return frame.rstrip("\n").split("\n")


def text(row, column, content, colour, weight=400):
    x, y = LEFT + column * CHAR, TOP + row * LINE
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-weight="{weight}" '
            f'textLength="{len(content) * CHAR:.1f}" xml:space="preserve">{escape(content)}</text>')


def bar(row, column, content, colour):
    """A rectangle, as block characters differ between fonts."""
    cells = sum((EIGHTHS.index(character) + 1) / 8 for character in content)
    x, y = LEFT + column * CHAR, TOP + row * LINE - 13
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{cells * CHAR:.1f}" height="16" rx="2" fill="{colour}"/>'


def drawn(row, line):
    """The words of a line, each with the colour that the terminal would give it."""
    parts, column, colour, weight = [], 0, TEXT, 400
    for code, content in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line):
        if code:
            parameters = code.split(";")
            colour = next((COLOURS[p] for p in reversed(parameters) if p in COLOURS), TEXT)
            weight = 700 if "1" in parameters else 400
            continue
        for word in re.finditer(f"[{EIGHTHS}]+|[^ {EIGHTHS}]+(?: [^ {EIGHTHS}]+)*", content):
            draw = bar if word[0][0] in EIGHTHS else text
            parts.append(draw(row, column + word.start(), word[0], colour, *([weight] if draw is text else [])))
        column += len(content)
    return parts


def main():
    lines = last_frame()
    print(re.sub(r"\x1b\[[\d;]*m", "", "\n".join(lines)))
    body = [text(0, 0, "$", PROMPT, 700), text(0, 2, "balanza demo " + " ".join(ARGUMENTS), STRONG, 700)]
    for number, line in enumerate(lines):
        body += drawn(number + 1.4, line)
    height = TOP + (len(lines) + 0.4) * LINE + 12
    dots = "".join(f'<circle cx="{20 + 18 * n}" cy="17" r="5.5" fill="{colour}"/>'
                   for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")))
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img">
<title>The demo: three servers of different speed under round robin, and three equal ones under least_conn</title>
<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="{BACKGROUND}"/>
<path d="M0 34V10A10 10 0 0 1 10 0H{WIDTH - 10}A10 10 0 0 1 {WIDTH} 10V34Z" fill="{BAR_TOP}"/>
{dots}
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14.3">
""" + "\n".join(body) + "\n</g>\n</svg>\n"
    (ROOT / "docs/demo.svg").write_text(svg)


main()
