"""`python -m training.rewards.lab DIR`: see ``scoring``."""

from __future__ import annotations

import sys

from training.rewards.lab.scoring import main

sys.exit(main(sys.argv[1:]))
