"""Marks of what one of the two balancers does otherwise, and small statistics."""

import pytest

from .balancer import ON_BALANZA, ON_NGINX


def balanza_only(reason):
    """Not for the oracle: the dialect's reference version or the stricter framing differs from NGINX 1.22."""
    return pytest.mark.skipif(ON_NGINX, reason=f"NGINX 1.22: {reason}")


# The 0.999999 quantile of the chi-square distribution, by degrees of freedom: a correct program fails one test in a million runs.
CHI_SQUARE = {1: 23.9, 2: 27.6, 8: 42.7}


def here(balanza, nginx):
    """The expected value, where the two differ."""
    return balanza if ON_BALANZA else nginx


def chi_square(counts, shares=None):
    """Pearson's statistic of counts against equal or given shares."""
    total = sum(counts)
    shares = shares or [1] * len(counts)
    expected = [total * share / sum(shares) for share in shares]
    return sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True))


def within(actual, expected, tolerance):
    """Whether every value is near its expectation."""
    return all(abs(a - e) <= tolerance for a, e in zip(actual, expected, strict=True))
