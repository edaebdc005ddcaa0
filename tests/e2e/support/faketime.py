"""Programs that see another time, by libfaketime.

Its command `faketime` is not used: it names semaphores by its process id, a killed one leaves them behind, and the next one
with this id fails. The library goes on without them.
"""

import os

import pytest

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

needs_faketime = pytest.mark.skipif(not os.path.exists(LIBRARY), reason="needs Debian's libfaketime")


def shifted(seconds):
    """The words before a command whose clock is to be off by so much."""
    return ["env", f"LD_PRELOAD={LIBRARY}", f"FAKETIME={seconds:+d}s"]
