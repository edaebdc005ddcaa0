"""`balance external`: a program chooses the server."""

import concurrent.futures
import os
import shutil
import signal
import textwrap
import time

import pytest

from support.ask import ask, tally
from support.balancer import ROOT, children, wait_for
from support.client import get
from support.expect import balanza_only
from support.origin import Origin, answer, named, proxy

pytestmark = balanza_only("has no external programs")

REASON = 'log_format why "$upstream_pick_reason"; access_log logs/why.log why;'


@pytest.fixture
def chooser(open_dir):
    """Writes a program that runs `body` for each question and records its process ID. The timeout is long, so that requests
    get an answer even on a busy machine."""
    def write(body, before=""):
        path = open_dir / "chooser.py"
        path.write_text(textwrap.dedent(f"""
            import os, sys, time
            open({str(open_dir / 'pids')!r}, "a").write(f"{{os.getpid()}}\\n")
            {before}
            for line in sys.stdin:
                word, number, key, *servers = line.split()
                servers = [server.split(":", 3) for server in servers]
                {textwrap.indent(textwrap.dedent(body), ' ' * 16).strip()}
            """))
        return f'balance external "program=python3 {path}" timeout=10s'
    write.pids = lambda: [int(pid) for pid in (open_dir / "pids").read_text().split()]
    return write


def running(chooser, count=1):
    """Waits until this many programs have started."""
    def started():
        try:
            return len(chooser.pids()) >= count
        except FileNotFoundError:
            return False
    wait_for(started, what="the program to start")
    # The worker notices the start a little later.
    time.sleep(0.1)


def reasons(one, count):
    return [line.split()[0] + " " + line.split()[1] for line in one.wait_log(count, "why.log")]


def test_a_program_chooses(balancer, chooser):
    servers = named(3)
    head = chooser("print(number, int(key.rpartition('-')[2]) % 3, flush=True)")
    one = balancer(proxy(servers, head=f"{head} key=$arg_key;", http=REASON))
    running(chooser)
    for number in range(30):
        assert get(one.port, f"/?key=k-{number}").text == str(number % 3)
    assert reasons(one, 30) == ["external program"] * 30


def test_what_a_program_is_told(balancer, chooser, open_dir):
    servers = named(3)
    head = chooser(f"open({str(open_dir / 'lines')!r}, 'a').write(line); print(number, '-', flush=True)")
    one = balancer(proxy(servers, head=f"{head};", parameters=["weight=3", "down", "max_conns=5"]))
    running(chooser)
    get(one.port, source="127.0.0.9")
    word, number, key, *told = (open_dir / "lines").read_text().split()
    assert (word, number, key) == ("pick", "0", "127.0.0.9")
    assert told == [f"0:3.0000:0:{servers[0].server}", f"2:1.0000:0:{servers[2].server}"]


def test_each_worker_has_its_own_and_it_ends_with_the_balancer(balancer, chooser):
    head = chooser("print(number, 0, flush=True)")
    one = balancer(proxy(named(2), head=f"{head};"), workers=3)
    running(chooser, 3)
    pids = chooser.pids()
    assert len(pids) == 3
    one.stop()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), what="the programs to end")


def test_a_reload_replaces_the_program(balancer, chooser):
    servers = named(2)
    head = chooser("print(number, 0, flush=True)")
    text = proxy(servers, head=f"{head};")
    one = balancer(text)
    running(chooser)
    # A program whose line has not changed keeps running.
    one.reload(text.replace("location /", "location = /new { return 204; } location /"))
    wait_for(lambda: get(one.port, "/new").status == 204, what="the reload")
    assert len(chooser.pids()) == 1 and tally(ask(one, 4), 2) == [4, 0]
    first = chooser.pids()[0]
    chooser("print(number, 1, flush=True)")
    one.reload(text.replace("timeout=10s", "timeout=9s"))
    running(chooser, 2)
    wait_for(lambda: tally(ask(one, 4), 2) == [0, 4], what="the new program")
    wait_for(lambda: not os.path.exists(f"/proc/{first}"), what="the old program to end")


def test_a_killed_program_is_started_again(balancer, chooser):
    servers = named(2)
    head = chooser("print(number, 1, flush=True)")
    one = balancer(proxy(servers, head=f"{head};", http=REASON))
    running(chooser)
    assert tally(ask(one, 10), 2) == [0, 10]
    # On a busy machine the program may have restarted before the first request. The restart delay doubles each time.
    for starts in range(2, 7):
        os.kill(chooser.pids()[-1], signal.SIGKILL)
        # No request fails or waits for the killed program.
        begun = time.monotonic()
        without = tally(ask(one, 10), 2)[0]
        assert time.monotonic() - begun < 9
        running(chooser, starts)
        if without:
            break
    assert without > 0
    wait_for(lambda: tally(ask(one, 10), 2) == [0, 10], what="the program")
    assert "restarting in 100ms" in one.error_log()
    # After the next failure, the pause is longer.
    os.kill(chooser.pids()[-1], signal.SIGKILL)
    one.wait_error("restarting in 200ms")


def test_a_slow_program_costs_its_limit_and_no_more(balancer, chooser):
    servers = named(2)
    # Longer than a worker may be delayed on a busy machine.
    head = chooser("time.sleep(2); print(number, 1, flush=True)").replace("10s", "20ms")
    one = balancer(proxy(servers, head=f"{head};", http=REASON))
    running(chooser)
    begun = time.monotonic()
    answers = ask(one, 10)
    assert 0.2 <= time.monotonic() - begun < 15
    assert tally(answers, 2) == [5, 5]
    assert all(reason.startswith("external score") or reason == "external only" for reason in reasons(one, 10))
    one.wait_error("does not answer in time")
    assert one.error_log().count("does not answer in time") == 1
    # The late answers, which are all 1, are not taken as answers to later questions.
    time.sleep(2.2)
    assert tally(ask(one, 10), 2) == [5, 5]


def test_a_program_that_never_reads(balancer, chooser):
    head = chooser("pass", before="time.sleep(1000)").replace("10s", "1ms")
    one = balancer(proxy(named(2), head=f"{head} key=$arg_k;"))
    running(chooser)
    # More questions than the pipe and the queue can hold.
    answers = [get(one.port, f"/?k={'x' * 4000}").text for _ in range(150)]
    assert min(tally(answers, 2)) > 0


@pytest.mark.parametrize("nonsense", ["I am not sure", "7", "-1 0", "0 one", "999999 0"])
def test_nonsense_ends_the_program(balancer, chooser, nonsense):
    servers = named(2)
    head = chooser(f"print({nonsense!r}, flush=True)")
    one = balancer(proxy(servers, head=f"{head};"))
    running(chooser)
    assert min(tally(ask(one, 10), 2)) > 0
    one.wait_error("which is not a valid answer")
    running(chooser, 2)


def test_who_cannot_be_chosen_is_not(balancer, chooser):
    servers = named(3)
    servers += named(1, first=3)
    head = chooser("print(number, {'down': 1, 'backup': 3, 'nobody': 99}.get(key, 2), flush=True)")
    one = balancer(proxy(servers, head=f"{head} key=$arg_k;", parameters=["", "down", "", "backup"]))
    running(chooser)
    for key in ("down", "backup", "nobody"):
        assert {get(one.port, f"/?k={key}").text for _ in range(8)} == {"0", "2"}
    assert {get(one.port, "/?k=else").text for _ in range(8)} == {"2"}


def test_the_next_server_is_asked_for_as_well(balancer, chooser):
    servers = named(3)
    head = chooser("print(number, servers[-1][0], flush=True)")
    one = balancer(proxy(servers, head=f"{head};"))
    running(chooser)
    assert tally(ask(one, 5), 3) == [0, 0, 5]
    servers[2].stop()
    # The server that failed is not a candidate of the second question.
    assert tally(ask(one, 5), 3) == [0, 5, 0]


def test_a_program_that_cannot_start(balancer):
    one = balancer(proxy(named(2), head="balance external program=/nonexistent/program;"))
    assert tally(ask(one, 10), 2) == [5, 5]
    one.wait_error("cannot be started .*No such file or directory.*100ms")
    one.wait_error("200ms")


def test_the_programs_time_is_not_the_servers(balancer, chooser):
    head = chooser("time.sleep(2.5); print(number, 0, flush=True)")
    one = balancer(proxy(named(2), head=f"{head};", http=(
        'log_format times "$request_time $upstream_response_time"; access_log logs/times.log times;')))
    running(chooser)
    get(one.port)
    whole, server = map(float, one.wait_log(1, "times.log")[0].split())
    assert whole >= 2.5 and server < 2


def test_many_at_once(balancer, chooser):
    slow = [Origin(lambda request, connection, name=str(index): time.sleep(0.05) or answer(name)) for index in range(3)]
    # The program collects two questions and answers them in reverse order.
    head = chooser("""
        held = globals().setdefault('held', [])
        held.append((number, key))
        if len(held) == 2:
            for number, key in reversed(held):
                print(number, int(key) % 3, flush=True)
            held.clear()
        """)
    one = balancer(proxy(slow, head=f"{head} key=$arg_k;"))
    running(chooser)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number in range(0, 20, 2):
            pair = pool.map(lambda key: get(one.port, f"/?k={key}").text, (number, number + 1))
            assert list(pair) == [str(number % 3), str((number + 1) % 3)]


def test_the_example(balancer, open_dir):
    servers = named(2)
    text = (ROOT / "examples/external/nginx.conf").read_text().replace("127.0.0.1:8080", "127.0.0.1:PORT")
    for index, server in enumerate(servers):
        text = text.replace(f"127.0.0.1:800{index + 1}", server.server)
    shutil.copy(ROOT / "examples/external/chooser.py", open_dir)
    text = text.replace("examples/external/chooser.py", str(open_dir / "chooser.py"))
    # A busy machine may need more than the 5 ms of the example.
    one = balancer(text=text.replace("timeout=5ms", "timeout=10s"))
    wait_for(lambda: get(one.port) and "external program" in "".join(one.access_log()), what="its first choice")
    # While both servers are idle, the first one is better because it has twice the weight.
    assert tally(ask(one, 10), 2) == [10, 0]


def test_a_killed_worker_takes_its_program_along(balancer, chooser):
    head = chooser("print(number, 0, flush=True)")
    one = balancer(proxy(named(2), head=f"{head};"))
    running(chooser)
    first = chooser.pids()[0]
    worker = [pid for pid in children(one.process.pid) if pid != first][0]
    os.kill(worker, signal.SIGKILL)
    # The program reaches the end of its input.
    wait_for(lambda: not os.path.exists(f"/proc/{first}"), what="the program to end")
    running(chooser, 2)
    wait_for(lambda: tally(ask(one, 4), 2) == [4, 0], what="the next program")
