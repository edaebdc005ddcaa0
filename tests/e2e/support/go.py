"""Programs of the tests that are written in Go."""

import functools
import pathlib
import subprocess
import tempfile

import pytest

from .balancer import ROOT


@functools.cache
def build(directory, package="."):
    """The program that a directory beside the tests describes. Go keeps what it has compiled."""
    program = pathlib.Path(tempfile.mkdtemp(prefix="go-")) / "program"
    built = subprocess.run(["go", "build", "-o", program, package], cwd=ROOT / "tests/e2e" / directory,
                           capture_output=True, text=True)
    if built.returncode != 0 and "dial tcp" in built.stderr:
        pytest.skip("the Go module proxy cannot be reached")
    assert built.returncode == 0, built.stderr
    return program
