"""A day of operations in little more than a minute: nothing is lost that need not be, whatever happens to the balancer and its servers."""

import json
import pathlib
import subprocess
import sys

import pytest

OPERATIONS = pathlib.Path(__file__).resolve().parents[1] / "operations"
sys.path.append(str(OPERATIONS))

from ledger import Event, Ledger  # noqa: E402

# Losses that some event explains are few beside what was sent: of all kinds, and of one. Uploads, about one a second, need
# the disk that fills.
MOST_LOST, MOST_LOST_OF_A_KIND, MOST_LOST_UPLOADS = 0.02, 0.2, 0.5


@pytest.mark.timeout(320)
def test_a_day_loses_nothing_that_need_not_be(tmp_path):
    done = subprocess.run(["timeout", "300", sys.executable, OPERATIONS / "day.py", "--minutes", "1.25", "--peak", "80",
                           "--out", tmp_path], capture_output=True, text=True)
    assert (tmp_path / "day.json").exists(), done.stdout + done.stderr
    day = json.loads((tmp_path / "day.json").read_text())
    problems = day["verdict"]["problems"]
    # In one line, because the summary of a run shows only the first.
    assert problems == [], f"{problems}, first {day['unexplained'][:5]}, events {day['events']}"
    assert done.returncode == 0
    for kind, row in day["kinds"].items():
        most = MOST_LOST_UPLOADS if kind == "upload" else MOST_LOST_OF_A_KIND
        assert row["sent"] > 10 and row["answered"] >= (1 - most) * row["sent"], kind
    sent, answered = (sum(row[what] for row in day["kinds"].values()) for what in ("sent", "answered"))
    assert answered >= (1 - MOST_LOST) * sent
    assert day["posts"]["twice"] == 0
    assert all((tmp_path / name).stat().st_size for name in ("README.md", "day.svg", "samples.tsv"))


def lost_at(ledger, kind, began, ended, problem="status 502"):
    sent = ledger.begin(kind)
    ledger.end(sent, "", problem)
    sent.began, sent.ended = ledger.start + began, ledger.start + ended
    return sent


def test_only_the_rule_of_an_event_explains_a_loss(tmp_path):
    ledger = Ledger(tmp_path / "requests.tsv")
    crash = Event("crash", 1.0, ledger.start + 10, ledger.start + 12, moment=ledger.start + 10,
                  classes={"a POST": lambda sent, _event: sent.kind == "post"})
    ledger.events = [Event("reload", 0.5, ledger.start + 5, ledger.start + 20), crash]
    of_the_crash = lost_at(ledger, "post", 9.5, 10.5)
    late = lost_at(ledger, "post", 15, 16)
    another_kind = lost_at(ledger, "kept", 9.5, 10.5)
    early = lost_at(ledger, "post", 1, 2)
    ledger.end(ledger.begin("post"))
    assert of_the_crash not in (unexplained := ledger.judge())
    assert unexplained == [late, another_kind, early]
    assert crash.lost == {"a POST": 1}
    assert ledger.answered == {"post": 1} and ledger.sent == {"post": 4, "kept": 1}
