"""The product's settings with the trainer of ``overhead.py``, which is silent in half of its steps."""

from __future__ import annotations

import sys

from webapp.settings import *  # noqa: F403
from webapp.settings import BASE_DIR

TRAINER_COMMAND = [sys.executable, str(BASE_DIR / "benchmarks/overhead.py"), "--as-trainer"]
