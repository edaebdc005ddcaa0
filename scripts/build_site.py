#!/usr/bin/env python3
"""Builds the pages for users as a site with search, by mdbook: target/site/index.html.

    scripts/build_site.py            installs mdbook with cargo if it is missing
    scripts/build_site.py --source   only writes target/site-source, what mdbook reads

docs/SUMMARY.md is the table of contents. Links between pages stay links; a link to another file of the source tree becomes
plain text, because the site does not have that file.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pages

SOURCE = pages.ROOT / "target/site-source"
SUMMARY = pathlib.PurePosixPath("docs/SUMMARY.md")


def site_path(path):
    """Where a page of the tree is in the site: README.md is the index of its directory."""
    return path.with_name("index.md") if path.name == "README.md" else path


def relative(target, page):
    """The way from a page to a file, both from the root."""
    return os.path.relpath(target, page.parent)


def members(root):
    """The pages of the table of contents, from the root."""
    found = []
    for _, target in pages.links((root / SUMMARY).read_text()):
        found.append(pathlib.PurePosixPath(os.path.normpath(SUMMARY.parent / target)))
    return found


def rewritten(text, page, root, book, needed):
    """A page's text with the site's links; files that it shows are added to `needed`."""

    def link(match):
        picture, words, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if not pages.is_local(target) or not path:
            return match[0]
        file = pathlib.PurePosixPath(os.path.normpath(page.parent / path))
        if picture:
            needed.add(file)
            return match[0]
        if (root / file).is_dir() and file / "README.md" in book:
            file = file / "README.md"
        if file not in book:
            return words
        return f"[{words}]({relative(site_path(file), site_path(page))}{hash_sign}{anchor})"

    lines = text.splitlines()
    for number, plain in enumerate(pages.prose(text)):
        # Links are looked for where no code is: what is between backticks is blank in `plain`.
        found = list(pages.LINK.finditer(plain))
        for place in reversed(found):
            whole = pages.LINK.fullmatch(lines[number][place.start():place.end()])
            lines[number] = lines[number][:place.start()] + link(whole) + lines[number][place.end():]
    return "\n".join(lines) + "\n"


def write_source(root=pages.ROOT, source=SOURCE):
    """Writes what mdbook reads."""
    shutil.rmtree(source, ignore_errors=True)
    book, needed = set(members(root)), set()
    for page in book:
        file = source / site_path(page)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(rewritten((root / page).read_text(), page, root, book, needed))
    for picture in needed:
        (source / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / picture, source / picture)
    # mdbook wants the table of contents at the top, with paths from there.
    lines = (root / SUMMARY).read_text().splitlines()
    for number, target in pages.links("\n".join(lines)):
        path = pathlib.PurePosixPath(os.path.normpath(SUMMARY.parent / target))
        lines[number - 1] = lines[number - 1].replace(f"({target})", f"({site_path(path)})")
    (source / "SUMMARY.md").write_text("\n".join(lines) + "\n")


def main():
    write_source()
    if "--source" in sys.argv[1:]:
        return 0
    cargo = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    mdbook = shutil.which("mdbook") or str(cargo / "bin/mdbook")
    if not pathlib.Path(mdbook).exists():
        print("mdbook is missing. Installing it takes some minutes: cargo install --locked mdbook", flush=True)
        subprocess.run([os.environ.get("CARGO", "cargo"), "install", "--locked", "mdbook"], check=True)
    subprocess.run([mdbook, "build", str(pages.ROOT)], check=True)
    print(f"written: {pages.ROOT / 'target/site/index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
