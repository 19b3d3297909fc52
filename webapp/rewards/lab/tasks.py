"""Building rollout sets in the background."""

from __future__ import annotations

from celery import shared_task

from webapp.celery import app as celery_app
from webapp.rewards.lab.building import set_build
from webapp.rewards.lab.selectors import lost_sets
from webapp.rewards.lab.sets import set_claim, set_enqueue


@shared_task(name="rewards.build_set", soft_time_limit=1800, time_limit=1830)
def build(set_id: str) -> None:
    """Build one set, unless somebody is at it."""
    rollout_set = set_claim(set_id=set_id)
    if rollout_set is not None:
        set_build(rollout_set=rollout_set)


@shared_task(name="rewards.find_lost_sets", soft_time_limit=20, time_limit=30)
def find_lost() -> None:
    """Send sets again whose worker fell silent."""
    for set_id in lost_sets().values_list("pk", flat=True)[:100]:
        set_enqueue(set_id)


# Beat imports all task modules before it reads its schedule, so the entry can stand beside the task it belongs to.
celery_app.conf.beat_schedule.setdefault(
    "rollout-sets", {"task": "rewards.find_lost_sets", "schedule": 30.0, "options": {"expires": 30}}
)
