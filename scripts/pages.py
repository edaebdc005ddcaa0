"""Reads the pages for users: README.md, docs and the other Markdown files of the source tree."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^ *```(.*)$")
# A link or an image; the target ends at a blank, before a title.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def pages(root=ROOT):
    """The paths of all pages, README.md first."""
    own = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    return [root / name for name in own if (root / name).exists()] + sorted((root / "docs").rglob("*.md"))


def blocks(text):
    """The fenced blocks: line number, language, text."""
    found, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and inside is None:
            inside = (number, fence[1].strip(), [])
        elif fence:
            found.append((*inside[:2], "\n".join(inside[2])))
            inside = None
        elif inside:
            inside[2].append(line)
    if inside:
        raise ValueError(f"the block in line {inside[0]} has no end")
    return found


def prose(text):
    """The lines of a text, empty where they are in a fenced block, without what is between backticks."""
    lines, inside = [], False
    for line in text.splitlines():
        fence = FENCE.match(line)
        lines.append("" if inside or fence else re.sub(r"`[^`]*`", lambda code: " " * len(code[0]), line))
        inside ^= bool(fence)
    return lines


def links(text):
    """The links and images of a text: line number, target."""
    return [(number, link[3]) for number, line in enumerate(prose(text), 1) for link in LINK.finditer(line)]


def is_local(target):
    return not re.match(r"[a-z][a-z+.-]*:", target)


def anchors(text):
    """The anchors of a text's headings, as repository browsers and mdbook make them."""
    found, inside = [], False
    for line in text.splitlines():
        inside ^= bool(FENCE.match(line))
        heading = re.match(r"#{1,6} +(.+?)\s*$", line)
        if inside or not heading:
            continue
        words = LINK.sub(r"\2", heading[1]).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = sum(1 for one in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", one))
        found.append(f"{name}-{count}" if count else name)
    return set(found)


def broken(page, root=ROOT):
    """The links of a page that lead nowhere, with the reason."""
    text = page.read_text()
    problems = [f"{page.relative_to(root)}:{number}: {line.strip()}: a link over two lines"
                for number, line in enumerate(prose(text), 1) if line.count("](") != len(LINK.findall(line))]
    for number, target in links(text):
        if not is_local(target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        place = f"{page.relative_to(root)}:{number}: {target}"
        if not file.is_relative_to(root):
            problems.append(f"{place}: outside of the tree")
        elif not file.exists():
            problems.append(f"{place}: no such file")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
            problems.append(f"{place}: no such heading")
    return problems
