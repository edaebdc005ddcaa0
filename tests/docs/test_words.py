"""The pages use plain words, and none of those that confused readers."""

import re

import pages
import pytest

# Use "it" for a server or a program, "again" for a repetition, "except" for an exception.
AVOIDED = re.compile(r"\b(nobody|somebody|anybody|whoever|anew|but for)\b", re.IGNORECASE)

# Generated texts: the table of directives, the lab's reports, and the parts of a page between marks.
WRITTEN_BY_PROGRAMS = re.compile(r"docs/(directives\.md|results/)")
GENERATED = re.compile(r"<!-- generated.*?<!-- /generated -->", re.DOTALL)

OWN = [page for page in pages.pages() if not WRITTEN_BY_PROGRAMS.match(page.relative_to(pages.ROOT).as_posix())]


def avoided(text):
    """The words of a text that should be avoided, each with its line number."""
    text = GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)
    return [(number, word[0]) for number, line in enumerate(pages.prose(text), 1) for word in AVOIDED.finditer(line)]


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_words_of_a_page(page):
    assert avoided(page.read_text()) == []


def test_words_are_found():
    text = "Nobody asks.\n`anew`\n```\nnobody\n```\n<!-- generated: x -->\nanew\n<!-- /generated -->\nall but for one\n"
    assert avoided(text) == [(1, "Nobody"), (9, "but for")]
