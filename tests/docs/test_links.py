"""Every relative link of the pages leads to a file, and every anchor to a heading."""

import build_site
import pages
import pytest


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_links_of_a_page(page):
    assert pages.broken(page) == []


def write(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_broken_links_are_found(tmp_path):
    write(tmp_path, "docs/a.md", "# A heading, `b`\n\n## Same\n## Same\n")
    write(tmp_path, "README.md", "[a](docs/a.md#a-heading-b) [b](docs/a.md#same-1) [c](docs/a.md#same-2) `[d](no.md)`\n"
          "```\n[e](no.md)\n# no\n```\n![f](no.svg) [g](https://example.org/no) [h](#no) [i](../x.md)\n[j](docs)\n[k\nl](docs)\n")
    assert [problem.split(": ", 1)[1] for problem in pages.broken(tmp_path / "README.md", tmp_path)] == [
        "l](docs): a link over two lines", "docs/a.md#same-2: no such heading", "no.svg: no such file", "#no: no such heading", "../x.md: outside of the tree"]
    assert pages.broken(tmp_path / "README.md", tmp_path)[1].startswith("README.md:1:")


def test_the_table_of_contents_has_every_page():
    listed = build_site.members(pages.ROOT)
    assert len(set(listed)) == len(listed)
    there = {page.relative_to(pages.ROOT).as_posix() for page in pages.pages()} - {build_site.SUMMARY.as_posix()}
    assert {str(page) for page in listed} == there


def test_links_of_the_site(tmp_path):
    build_site.write_source(pages.ROOT, tmp_path)
    written = sorted(tmp_path.rglob("*.md"))
    assert len(written) == len(pages.pages())
    assert [problem for page in written for problem in pages.broken(page, tmp_path)] == []


def test_links_that_the_site_does_not_have_become_text(tmp_path):
    tree, source = tmp_path / "tree", tmp_path / "source"
    write(tree, "docs/SUMMARY.md", "- [One](../README.md)\n- [Two](design/README.md)\n- [Three](three.md)\n")
    write(tree, "README.md", "[the code](crates/x.rs) `[no](docs/three.md)` [three](docs/three.md#a) [why](docs/design)\n"
          "![p](docs/p.svg)\n```sh\n[no](docs/three.md)\n```\n")
    write(tree, "docs/p.svg", "<svg/>")
    write(tree, "docs/three.md", "# a\n[start](../README.md) [why](design/README.md) [x](https://example.org)\n")
    write(tree, "docs/design/README.md", "[three](../three.md)\n")
    build_site.write_source(tree, source)
    assert (source / "index.md").read_text() == (
        "the code `[no](docs/three.md)` [three](docs/three.md#a) [why](docs/design/index.md)\n"
        "![p](docs/p.svg)\n```sh\n[no](docs/three.md)\n```\n")
    assert (source / "docs/three.md").read_text() == (
        "# a\n[start](../index.md) [why](design/index.md) [x](https://example.org)\n")
    assert (source / "SUMMARY.md").read_text() == (
        "- [One](index.md)\n- [Two](docs/design/index.md)\n- [Three](docs/three.md)\n")
    assert (source / "docs/p.svg").exists()
