"""Every command of the pages does what the page says: it is run, with the program under test.

session.py says which commands are run otherwise than they stand there, and which are not run, and why.
"""

import re

import pages
import pytest
from session import Command, Session, commands, looks_like_a_command
from support.expect import balanza_only

pytestmark = balanza_only("the pages are Balanza's")

# What must be there before a page's first command.
BEFORE = {
    # A balancer that the commands can signal: that of "Getting started".
    "docs/operations.md": """mkdir shop && cd shop && printf '%s\\n' 'events { }' \
        'http { log_format runbook "$msec $status"; access_log logs/access.log; access_log logs/runbook.log runbook; error_log logs/error.log;' \
        'upstream app { zone app 64k; server 127.0.0.1:8001; server 127.0.0.1:8002; }' \
        'server { listen 127.0.0.1:8080; location /api { api write=on; } location / { return 204; } } }' > shop.conf \
        && balanza -p . -c shop.conf""",
    "docs/api.md": """mkdir shop && cd shop && printf '%s\\n' 'events { }' \
        'http { access_log logs/access.log; upstream app { zone app 64k; server 10.0.0.1:8080; server 10.0.0.4:8080; }' \
        'keyval_zone zone=targets:64k; keyval $remote_addr $target zone=targets;' \
        'server { listen 127.0.0.1:8080; location /api { api write=on; } } }' > shop.conf && balanza -p . -c shop.conf""",
    "docs/experiment.md": """mkdir shop && cd shop && printf '%s\\n' 'events { }' \
        'http { access_log logs/access.log; upstream app { zone app 64k; least_conn; server 10.0.0.1:8080; server 10.0.0.4:8080; }' \
        'server { listen 127.0.0.1:8080; location /api { api write=on; } } }' > shop.conf && balanza -p . -c shop.conf""",
}

# Commands between backticks that stand for others, and what is run in their place.
STANDS_FOR = {
    "balanza algorithms NAME": "balanza algorithms least_conn",
    "balanza simulate NAME": "balanza simulate one-slow-server",
    "balanza simulate NAME --out DIR": "balanza simulate one-slow-server --out pictures",
    # These are the names of the subcommands.
    "balanza simulate": "balanza simulate --help",
    "balanza simulate sweep": "balanza simulate sweep --help",
    "balanza lab": "balanza lab --help",
    "balanza recommend": "balanza recommend --help",
    "balanza api": "balanza api --help",
    "balanza top": "balanza top --help",
    "balanza status": "balanza status --help",
    "balanza doctor": "balanza doctor --help",
    "balanza explain ID": "balanza explain --help",
    "balanza drain": "balanza drain --help",
    "balanza experiment": "balanza experiment --help",
    "balanza undrain": "balanza undrain --help",
    "balanza migrate": "balanza migrate --help",
    "balanza migrate haproxy.cfg": "balanza migrate --help",
    "balanza migrate FILE": "balanza migrate --help",
    "balanza target": "balanza target --help",
    # Minutes with this program, which is not optimised.
    "balanza simulate supermarket --out DIR": "balanza simulate supermarket --print",
    # The directories are those of finished runs.
    "balanza lab report DIR": "balanza lab report --help",
    "balanza lab compare BEFORE AFTER": "balanza lab compare --help",
    "balanza lab show PLAN": "balanza lab show unne-2023",
    # Run in blocks of the pages.
    "balanza -s stop|quit|reopen|reload": "balanza -h",
    "balanza -s reload": "balanza -h",
    "balanza -s reopen": "balanza -h",
    "balanza -p . -c shop.conf": "balanza -h",
}

TEXTS = {page.relative_to(pages.ROOT).as_posix(): page.read_text() for page in pages.pages()}
WITH_COMMANDS = [name for name, text in TEXTS.items() if commands(text)]


@pytest.fixture
def session():
    session = Session()
    yield session
    session.close()


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_of_a_page(session, name):
    if name in BEFORE:
        status, said = session.run(BEFORE[name])
        assert status == 0, said
    for command in commands(TEXTS[name]):
        problem = session.follow(command, name)
        assert not problem, f"{name}:{command.line}: {command.text}: {problem}"


def test_make_targets_in_the_text(session):
    """What stands between backticks and begins with `make` is a target of the Makefile."""
    found = {code for text in TEXTS.values() for code in re.findall(r"`(make [^`]+)`", text) if "NAME" not in code}
    assert len(found) > 5
    for text in sorted(found):
        problem = session.follow(Command(0, text, False))
        assert not problem, f"{text}: {problem}"


INLINE = sorted({code for text in TEXTS.values() for code in re.findall(r"`(balanza [^`]+)`", text)})


@pytest.mark.parametrize("text", INLINE)
def test_commands_in_the_text(session, text):
    """What stands between backticks and begins with `balanza`."""
    problem = session.follow(Command(0, STANDS_FOR.get(text, text), False))
    assert not problem, f"{text}: {problem}"


def test_what_stands_for_others_is_there():
    assert set(STANDS_FOR) <= set(INLINE)


@pytest.mark.parametrize("name", TEXTS)
def test_every_command_is_marked(name):
    """A block that is not marked as `sh` has no commands."""
    for start, language, body in pages.blocks(TEXTS[name]):
        found = [line for line in body.splitlines() if language != "sh" and looks_like_a_command(line)]
        assert not found, f"{name}:{start}: {found}"


def test_commands_are_found():
    text = "\n".join([
        "`make no`", "```sh", "one    # the first", "two \\", "    --more", "", "# a comment", "cat > f <<'END'", "# kept",
        "END", "three  # fails: because", "```", "```nginx", "no;", "```",
    ])
    assert commands(text) == [Command(3, "one", False), Command(4, "two --more", False),
                              Command(8, "cat > f <<'END'\n# kept\nEND", False), Command(11, "three", True)]
    assert looks_like_a_command("balanza -t") and looks_like_a_command("make test")
    assert not looks_like_a_command("balanza: worker process")


@pytest.mark.parametrize("text, fails, expected", [
    ("true", False, None),
    ("false", False, "ended with 1"),
    ("balanza --no-such-option", False, "ended with 1"),
    ("balanza --no-such-option", True, None),
    ("true", True, "the text says that it fails"),
    ("no-such-program", True, "ended with 127"),
    ("make no-such-target", False, "make -n ended with 2"),
    ("benches/run.py --only no_such_load", False, "lacks ['no_such_load']"),
    ("balanza target --no-such-option", False, "ended with"),
    ("balanza lab run no-such-plan", False, "after Ctrl-C"),
    ("sudo no-such-program", False, None),
])
def test_wrong_commands_are_found(session, text, fails, expected):
    problem = session.follow(Command(1, text, fails))
    assert problem is None if expected is None else expected in problem, problem


def test_the_shell_remembers(session):
    assert session.run("mkdir -p ~/a && cd ~/a; export B='1 2'; true")[0] == 0
    assert session.run("pwd; echo \"$B\"") == (0, f"{session.home}/a\n1 2\n")
