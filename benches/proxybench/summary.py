"""From samples to medians, and from medians to verdicts."""

import statistics

from . import plan

PLACES = {"near": "the two cores share a cache", "far": "the two cores share no cache"}
SAMPLES_MIN = 3
FIELDS = ("total", "user", "kernel", "instructions", "per_second", "p50_us", "p99_us", "rss_per_idle", "rss_after")


def medians(samples):
    """place -> scenario -> subject -> field -> median; places and subjects with too few samples are absent."""
    groups = {}
    for sample in samples:
        groups.setdefault((sample["place"], sample["scenario"], sample["subject"]), []).append(sample)
    result = {}
    for (place, scenario, subject), group in groups.items():
        if place not in PLACES or len(group) < SAMPLES_MIN:
            continue
        values = {name: statistics.median(s[name] for s in group) for name in FIELDS if name in group[0]}
        quartiles = statistics.quantiles((s["total"] for s in group), n=4)
        values |= {"samples": len(group), "quartile_1": quartiles[0], "quartile_3": quartiles[2]}
        result.setdefault(place, {}).setdefault(scenario, {})[subject] = values
    return result


def idle_memory(samples):
    """System -> (bytes for each idle connection, bytes of the whole balancer with them), from all places."""
    groups = {}
    for sample in samples:
        if "rss_per_idle" in sample:
            groups.setdefault(sample["subject"], []).append(sample)
    return {
        subject: tuple(statistics.median(s[name] for s in group) for name in ("rss_per_idle", "rss_after"))
        for subject, group in groups.items()
    }


def ratio(summary, place, scenario, subject, reference, field="total"):
    """How much `subject` costs for one of `reference`, or None if either was not measured there."""
    values = summary.get(place, {}).get(scenario, {})
    if subject not in values or reference not in values or field not in values[subject]:
        return None
    return values[subject][field] / values[reference][field]


def verdicts(summary, memory, scenarios, failures):
    """What each budget asks, what was measured at each place, and whether that is ok, over, or not measured."""
    failed = {(failure["scenario"], failure["subject"]) for failure in failures}
    result = []
    for budget in plan.BUDGETS:
        if budget.scenario not in scenarios:
            continue
        parts = (budget.scenario, budget.subject, budget.reference, budget.field)
        measured = [(place, ratio(summary, place, *parts)) for place in PLACES]
        measured = [entry for entry in measured if entry[1] is not None] or [("", None)]
        what = "p99" if budget.field == "p99_us" else "cost"
        text = f"{budget.scenario}: {what} of {budget.subject} / {budget.reference}"
        broken = (budget.scenario, budget.subject) in failed
        result += [verdict(place, text, value, budget.limit, broken) for place, value in measured]
    if plan.IDLE_NAME in scenarios:
        ours, theirs = (memory.get(name, (None,))[0] for name in ("balanza", "nginx"))
        over = None if ours is None or theirs is None else ours - theirs
        broken = (plan.IDLE_NAME, "balanza") in failed
        text = f"{plan.IDLE_NAME}: bytes of memory for each idle connection"
        result.append(verdict("", text, ours, plan.IDLE_BYTES_MAX, broken))
        result.append(verdict("", f"{text}, more than nginx", over, plan.IDLE_OVER_NGINX_BYTES, broken))
    return result


def verdict(place, text, measured, limit, broken):
    state = "over" if broken else "not measured" if measured is None else "ok" if measured <= limit else "over"
    return {"place": place, "budget": text, "limit": limit, "measured": measured, "verdict": state}
