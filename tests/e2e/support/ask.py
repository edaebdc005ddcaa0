"""Asks a balancer many times and counts who answered."""

import collections

from .client import Client


def ask(one, count, target="/", *, headers=(), source=None):
    """The answers' bodies, in order, on as few connections as the balancer allows."""
    answers = []
    client = None
    while len(answers) < count:
        client = client or Client(one.port, source=source)
        response = client.get(target, headers=headers)
        assert response is not None and response.status == 200, response and response.start
        answers.append(response.text.strip())
        if response["Connection"] == "close":
            client.close()
            client = None
    if client:
        client.close()
    return answers


def tally(answers, servers):
    """How often each of the servers "0", "1", … answered."""
    counted = collections.Counter(answers)
    assert set(counted) <= {str(index) for index in range(servers)}, counted
    return [counted[str(index)] for index in range(servers)]
