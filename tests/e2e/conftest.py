"""The end-to-end tests.

Run all with tests/e2e/run.sh, one with `tests/e2e/run.sh -k name`, against the oracle with BALANCER=nginx.
"""

from support.fixtures import *  # noqa: F401, F403
