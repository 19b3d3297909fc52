"""Settings of the child processes that chaos tests kill: a stub trainer, short leases, a quick reaper."""

import sys
from pathlib import Path

from webapp.settings import *  # noqa: F403
from webapp.settings import CELERY_BEAT_SCHEDULE, DATA_DIR, env_int

TRAINER_COMMAND = [sys.executable, str(Path(__file__).with_name("stub_trainer.py"))]
LEASE_TTL_S = env_int("TILTYARD_LEASE_TTL_S", 2)
STOP_GRACE_S = 2
CELERY_BEAT_SCHEDULE = {
    "reap": {**CELERY_BEAT_SCHEDULE["reap"], "schedule": 0.5},
    "outbox": {**CELERY_BEAT_SCHEDULE["outbox"], "schedule": 0.5},
}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "chaos-beat")
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
