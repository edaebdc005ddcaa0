"""What happens when something breaks: each test is a line of the chapter "What happens when" in docs/operations.md.

Run all with `TESTS=tests/faults tests/e2e/run.sh`; they need a build with debug assertions.
"""

import pytest

from support.fixtures import *  # noqa: F401, F403


class Faults:
    """Faults of the running program that a test asks for (crates/proxy/src/fault.rs)."""

    def __init__(self, directory):
        self.directory = directory

    def ask(self, place, what="panic"):
        """The next thread that comes by this place does it, once."""
        file = self.directory / f".{place}"
        file.write_text(what)
        file.chmod(0o666)
        file.rename(self.directory / place)

    def is_pending(self, place):
        return (self.directory / place).exists()


@pytest.fixture
def faults(open_dir, monkeypatch):
    """Balancers that are started after this obey its faults."""
    monkeypatch.setenv("BALANZA_FAULTS", str(open_dir))
    return Faults(open_dir)
