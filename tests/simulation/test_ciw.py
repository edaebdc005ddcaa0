"""Three small networks, simulated by `balanza simulate` and by Ciw (Palmer et al., "Ciw: An open-source discrete event
simulation library", Journal of Simulation 2019), which shares nothing with it.

The means have to agree within twice the width of their confidence intervals together. Seeds are fixed.
"""

import json
import math
import os
import statistics
import subprocess
from pathlib import Path

import ciw

BALANZA = os.environ.get("BALANZA", str(Path(__file__).parents[2] / "target/debug/balanza"))
TRIALS, TIME, WARMUP = 8, 4000, 400
STUDENT = 2.3646  # 97.5 %, 7 degrees of freedom


def interval(values):
    """Mean and half of its 95 % interval."""
    return statistics.mean(values), STUDENT * statistics.stdev(values) / math.sqrt(len(values))


def by_ciw(network, first=1):
    """The mean time in system of what was served by the nodes from `first` on, and the part that was refused."""
    times, refused = [], []
    for seed in range(TRIALS):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(TIME)
        records = [r for r in simulation.get_all_records() if r.arrival_date > WARMUP and r.node >= first]
        served = [r.exit_date - r.arrival_date for r in records if r.record_type == "service"]
        times.append(statistics.mean(served))
        refused.append(1 - len(served) / len(records))
    return interval(times), interval(refused)


def network(rate, routing, services):
    """A node that routes in no time, and the servers behind it."""
    n = len(services)
    return ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=rate)] + [None] * n,
        service_distributions=[ciw.dists.Deterministic(value=0.0)] + services,
        number_of_servers=[float("inf")] + [1] * n,
        routing=ciw.routing.NetworkRouting(routers=[routing] + [ciw.routing.Leave()] * n),
    )


def by_balanza(directory, text):
    scenario = directory / "scenario.toml"
    run = f'replications = {TRIALS}\nrun = {{ duration = {10 * TIME}, warmup = {WARMUP} }}\n'
    scenario.write_text(run + text)
    result = subprocess.run([BALANZA, "simulate", scenario, "--json"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["points"][0]["runs"][0]


def agree(one, other):
    (a, half_a), (b, half_b) = one, other
    assert half_a < 0.06 * a and half_b < 0.06 * b, "the intervals are too wide to tell"
    assert abs(a - b) < 2 * math.hypot(half_a, half_b), (one, other)


def mean(run):
    return run["mean_time_in_system"], run["ci95"]


def test_join_the_shortest_queue(tmp_path):
    exponential = [ciw.dists.Exponential(rate=1.0)] * 4
    routing = ciw.routing.JoinShortestQueue(destinations=[2, 3, 4, 5], tie_break="random")
    times, _ = by_ciw(network(3.4, routing, exponential), first=2)
    ours = by_balanza(tmp_path, 'algorithms = ["least_conn"]\nloads = [0.85]\n[[servers]]\ncount = 4\n')
    agree(times, mean(ours))


def test_random_routing_by_weight_to_servers_of_different_speed(tmp_path):
    # Work is uniform on 0 to 2; speeds 1, 2 and 0.5, weights in their proportion.
    services = [ciw.dists.Uniform(0, 2 / speed) for speed in (1, 2, 0.5)]
    routing = ciw.routing.Probabilistic(destinations=[2, 3, 4], probs=[2 / 7, 4 / 7, 1 / 7])
    times, _ = by_ciw(network(0.7 * 3.5, routing, services), first=2)
    ours = by_balanza(
        tmp_path,
        'algorithms = ["random"]\nloads = [0.7]\nservice = { kind = "uniform", from = 0, to = 2 }\n'
        "[[servers]]\nweight = 2\n[[servers]]\nspeed = 2\nweight = 4\n[[servers]]\nspeed = 0.5\n",
    )
    agree(times, mean(ours))


def test_finite_queues_refuse(tmp_path):
    # Two nodes of two servers, in each of which three may wait; a load of 0.95.
    # Random routing splits the arrivals, so that each node has its own.
    nodes = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=1.9)] * 2,
        service_distributions=[ciw.dists.Exponential(rate=1.0)] * 2,
        number_of_servers=[2, 2],
        queue_capacities=[3, 3],
        routing=ciw.routing.NetworkRouting(routers=[ciw.routing.Leave()] * 2),
    )
    times, (part, half) = by_ciw(nodes)
    ours = by_balanza(
        tmp_path,
        'algorithms = ["random"]\nloads = [0.95]\n'
        "[[servers]]\ncount = 2\nconcurrency = 2\nqueue_limit = 3\nmax_fails = 0\n",
    )
    counts = ours["counts"]
    ended = counts["ok"] + counts["errors"]
    # A refusal takes no time.
    agree(times, (ours["mean_time_in_system"] * ended / counts["ok"], ours["ci95"]))
    assert abs(part - counts["errors"] / ended) < 2 * half, (part, half, counts)
