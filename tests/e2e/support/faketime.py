"""Programs that see another time, by libfaketime.

The command `faketime` is not used. It names a semaphore by its process ID and fails if that exists, and a killed process leaves
its semaphore behind. The library works without one.
"""

import os

import pytest

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

needs_faketime = pytest.mark.skipif(not os.path.exists(LIBRARY), reason="needs Debian's libfaketime")


def shifted(seconds):
    """Words to put before a command, so that its clock differs by this many seconds."""
    return ["env", f"LD_PRELOAD={LIBRARY}", f"FAKETIME={seconds:+d}s"]
