"""``python -m tests.training.without_health run …``: as ``python -m training``, but it asks no environment how it is.

The scripted servers of the tests answer episodes alone. It is a program so that it is forked (``tests/forks.py``).
"""

from __future__ import annotations

import sys

from training.__main__ import main
from training.algorithms import grpo, playing

if __name__ == "__main__":
    grpo.check_environment = playing.check_environment = lambda config: []
    sys.exit(main(sys.argv[1:]))
