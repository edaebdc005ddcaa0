"""Both programs answer the same requests in the same way."""

import pytest

from differential import configuration, differences
from differential.generate import SEED
from differential.pair import Pair, chosen, report
from support.balancer import nginx_says


@pytest.mark.parametrize("name", configuration.names())
def test_same_answers(name, open_dir):
    pair = Pair(configuration.read(name), open_dir)
    try:
        pair.start()
        pair.run()
    finally:
        pair.stop()
    if pair.failures:
        pytest.fail(report(name, pair.failures), pytrace=False)
    # The difference is gone, or the requests do not show it: then it must not be accepted either.
    if SEED == 1 and chosen() == range(300) and "nginx/1.22." in nginx_says():
        stale = {key for key, one in differences.ACCEPTED.items() if one.shown_by == name} - pair.seen
        assert not stale, f"accepted, but not seen: {stale}"


def test_each_accepted_difference_is_documented():
    names = differences.documented()
    assert sorted(names) == sorted(differences.ACCEPTED)
    assert {one.shown_by for one in differences.ACCEPTED.values()} <= set(configuration.names())
