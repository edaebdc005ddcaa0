"""The texts for users: links lead somewhere, and commands do what the text says.

Run all with `scripts/test.sh docs`.
"""

from support.fixtures import *  # noqa: F401, F403
