"""scripts/test.sh: every suite runs, and the last lines tell what came out."""

import shutil
import subprocess
import types

import pytest

from support.balancer import ROOT
from support.expect import balanza_only

pytestmark = balanza_only("has no such script")

# The unit tests are two calls of it.
CARGO = """#!/bin/sh
[ "$1" = build ] && exit 0
echo "test passes ... ok"
echo "test breaks ... {outcome}"
echo "test waits ... ignored, needs a disk"
echo "test result: {outcome}. 2 passed; {failed} failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s"
exit {failed}
"""

PYTEST = """#!/bin/sh
echo "arguments: $*"
echo "SKIPPED [2] test_a.py:3: no such tool"
echo "FAILED test_a.py::test_one - AssertionError: 1"
echo "1 failed, 5 passed, 2 skipped in 1.20s"
exit 1
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of the script with suites that only print."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test.sh", tmp_path / "scripts")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    for name in ("install-test-tools.sh", "install-lab-tools.sh", "build-nginx-module.sh"):
        write(f"scripts/{name}", "#!/bin/sh\n")
    write("cargo", CARGO.format(outcome="ok", failed=0))
    write("target/debug/balanza", "")
    write("tests/e2e/run.sh", '#!/bin/sh\necho "in ${TESTS:-e2e}"\necho "======= 7 passed in 61.07s (0:01:01) ======="\n')
    write("tests/faults/pytest.ini", "[pytest]\n")
    (tmp_path / "tests/notes").mkdir()
    return types.SimpleNamespace(path=tmp_path, write=write)


def run(tree, *words):
    done = subprocess.run([tree.path / "scripts/test.sh", *words], capture_output=True, text=True, timeout=100,
                          env={"PATH": "/usr/bin:/bin", "CARGO": str(tree.path / "cargo")})
    return done.returncode, done.stdout


def rows(out):
    """The table at the end: for each suite its result and its counts."""
    table = out.partition("\nSuites ")[2].splitlines()[1:-1]
    return {line.split()[0]: (line.split()[1], line.partition(" s ")[2].strip()) for line in table}


def test_all_suites_pass(tree):
    status, out = run(tree)
    assert status == 0
    assert rows(out) == {"tools": ("passed", ""), "build": ("passed", ""), "unit": ("passed", "4 passed, 0 failed, 2 skipped"),
                         "e2e": ("passed", "7 passed, 0 failed, 0 skipped"),
                         "faults": ("passed", "7 passed, 0 failed, 0 skipped")}
    assert f"in {tree.path}/tests/faults\n" in out, "a directory without a run.sh uses the one of tests/e2e"
    assert out.splitlines()[-1].startswith("All 5 steps passed")
    assert "  unit: test waits ... ignored, needs a disk\n" in out


def test_suites_after_a_failed_one_run(tree):
    tree.write("cargo", CARGO.format(outcome="FAILED", failed=1))
    tree.write("tests/e2e/run.sh", PYTEST)
    tree.write("tests/simulation/run.sh", "#!/bin/sh\necho 3 passed in 1.0s\n")
    tree.write("scripts/install-lab-tools.sh", "#!/bin/sh\nexit 3\n")
    status, out = run(tree)
    assert status == 1
    assert rows(out) == {"tools": ("FAILED", ""), "build": ("passed", ""), "unit": ("FAILED", "4 passed, 2 failed, 2 skipped"),
                         "e2e": ("FAILED", "5 passed, 1 failed, 2 skipped"),
                         "faults": ("FAILED", "5 passed, 1 failed, 2 skipped"),
                         "simulation": ("passed", "3 passed, 0 failed, 0 skipped")}
    assert "  e2e: FAILED test_a.py::test_one - AssertionError: 1\n" in out
    assert "  e2e: SKIPPED [2] test_a.py:3: no such tool\n" in out
    assert "  unit: test breaks ... FAILED\n" in out
    assert out.splitlines()[-1].startswith("4 of 6 steps failed")


def test_a_suite_with_a_script_of_its_own_takes_arguments(tree):
    tree.write("tests/nginx-module/run.sh", PYTEST)
    status, out = run(tree, "nginx-module", "-k", "a b")
    assert status == 1 and "arguments: -k a b\n" in out
    assert rows(out) == {"nginx-module": ("FAILED", "5 passed, 1 failed, 2 skipped")}


def test_a_suite_that_ends_without_a_summary_has_failed(tree):
    tree.write("tests/e2e/run.sh", "#!/bin/sh\nexit 4\n")
    status, out = run(tree, "e2e")
    assert status == 1 and rows(out)["e2e"] == ("FAILED", "0 passed, 0 failed, 0 skipped")


def test_without_the_program_its_suites_are_not_run(tree):
    tree.write("cargo", '#!/bin/sh\n[ "$1" = build ] && { echo "error[E0425]: no such thing"; exit 101; }\n'
                        'echo "test result: ok. 2 passed; 0 failed; 0 ignored"\n')
    status, out = run(tree)
    assert status == 1
    assert rows(out) == {"tools": ("passed", ""), "build": ("FAILED", ""), "unit": ("passed", "4 passed, 0 failed, 0 skipped"),
                         "e2e": ("FAILED", "0 passed, 0 failed, 0 skipped"),
                         "faults": ("FAILED", "0 passed, 0 failed, 0 skipped")}
    assert "  build: error[E0425]: no such thing\n" in out and "  e2e: not run: balanza does not compile\n" in out
