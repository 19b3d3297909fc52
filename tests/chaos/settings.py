"""The product's settings for the processes that chaos tests kill, but for a trainer that trains nothing.

Leases, graces, limits and beats are what people run with: with shorter ones a test says nothing about them.
"""

import os
import sys
from pathlib import Path

from webapp.settings import *  # noqa: F403

# The stub writes a journal as fast as a test asks for, so that kills land in hundreds of steps instead of in five.
WITHIN = os.environ.get("CHAOS_TRAINER_WITHIN", "").split()
WITHIN = os.environ.get("CHAOS_TRAINER_WITHIN", "").split()
TRAINER_COMMAND = [*WITHIN, sys.executable, str(Path(__file__).with_name("stub_trainer.py"))]
