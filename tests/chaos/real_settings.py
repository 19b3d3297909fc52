"""As ``tests.chaos.settings``, with the real trainer."""

import sys

from tests.chaos.settings import *  # noqa: F403

TRAINER_COMMAND = [sys.executable, "-m", "training"]
STOP_GRACE_S = 8
