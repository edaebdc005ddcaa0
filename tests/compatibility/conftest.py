"""The same configuration files and the same requests for NGINX and Balanza: answers must be equal.

    scripts/test.sh compatibility                     all configurations
    scripts/test.sh compatibility -k wordpress        one
    NGINX=/path/to/nginx scripts/test.sh compatibility
    COMPATIBILITY_SEED=7 COMPATIBILITY_REQUESTS=5000 scripts/test.sh compatibility

Accepted differences are the named rows of docs/nginx-differences.md (differential/differences.py). A failed test prints a
command that repeats each case alone; what depends on earlier requests needs all cases up to it (COMPATIBILITY_CASES=0-37).
"""

import pytest

from differential.generate import SEED
from support import balancer as balancers
from support.fixtures import clean_up, open_dir  # noqa: F401


def pytest_report_header():
    return f"{balancers.nginx_says().splitlines()[0]} beside {balancers.binary('balanza')}, COMPATIBILITY_SEED={SEED}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when == "call":
        for one in balancers.started:
            report.sections.append((one.kind, one.report()[-3000:]))
