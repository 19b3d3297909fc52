"""What a claim costs while thousands of runs wait: ``python benchmarks/waiting.py``.

Starts a PostgreSQL of its own, writes runs that wait, runs at work and the attempts of a year, and times what a worker
does to find the run that is first (``claim``), what a page does to know the places of all (``read``, and ``foresee``
with the order in which they are taken), and for comparison the row that was queued first, whatever the shares
(``oldest``).
Prints JSON: the median and the 95th percentile of the milliseconds of each, what of it is processor time of Python and
of PostgreSQL, and its queries.
``--waiting 1000`` writes fewer, ``--folder F`` keeps the database for the next time. With ``--sessions`` each run plays
in its project's environment, which holds too few sessions for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

ROUNDS, PROJECTS, PEOPLE, AT_WORK, ATTEMPTS = 15, 40, 5, 64, 100_000


def fill(waiting: int, sessions: bool) -> None:
    """Runs of forty projects, each with five people, and attempts of a year; a day's worth of them count."""
    from django.db import connection
    from django.utils import timezone

    from training.config import JobConfig
    from webapp.common.workers.models import Worker
    from webapp.environments.models import Environment
    from webapp.people.teams.models import Project, Team, User
    from webapp.runs.models import Attempt, Run

    rng, now, config = random.Random(5), timezone.now(), JobConfig().model_dump(mode="json")
    team = Team.objects.create(name="bench")
    people = [User.objects.create(username=f"person-{n}") for n in range(PROJECTS * PEOPLE)]
    projects = [Project.objects.create(team=team, name=f"P{n}", slug=f"p-{n}") for n in range(PROJECTS)]

    worlds = [Environment.objects.create(project=project, name="world") for project in projects if sessions]
    for world in worlds:
        world.replicas.create(number=1, state="healthy", health={"slots": 64})

    def run(number: int, **fields: Any) -> Run:
        place = rng.randrange(PROJECTS)
        person = people[place * PEOPLE + rng.randrange(PEOPLE)]
        known = {"project": projects[place], "created_by": person, "name": f"r{number}", "total_steps": 100}
        if worlds:
            known["sessions"] = f"{worlds[place].pk}/{rng.choice([8, 16, 32, 48])}"
        queued_at = now - timedelta(minutes=rng.randrange(30 * 60))
        priority = rng.choice(["high", "normal", "normal", "normal", "low"])
        return Run(**known, config=config, resolved=config, queued_at=queued_at, priority=priority, **fields)

    Run.objects.bulk_create((run(n, state="queued") for n in range(waiting)), batch_size=500)
    lease = {"state": "running", "lease_beat_at": now + timedelta(hours=1), "step_seconds": 30.0, "step": 5}
    held = [run(waiting + n, lease_worker=f"train@{n}", attempt=1, **lease) for n in range(AT_WORK)]
    ended = [run(waiting + AT_WORK + n, state="succeeded") for n in range(ATTEMPTS // 50)]
    Run.objects.bulk_create([*held, *ended], batch_size=500)
    rows = [Attempt(run=one, number=1, owner="x", started_at=now - timedelta(minutes=50)) for one in held]
    for number in range(ATTEMPTS):
        until = now - timedelta(minutes=5.2 * (number + 1))
        began = until - timedelta(minutes=rng.randrange(1, 300))
        rows.append(
            Attempt(run=ended[number // 50], number=number % 50 + 1, owner="x", started_at=began, ended_at=until)
        )
    Attempt.objects.bulk_create(rows, batch_size=2000)
    beat = now + timedelta(hours=1)
    Worker.objects.bulk_create(
        Worker(name=f"train@{n}", queues=["train"], started_at=now, beat_at=beat) for n in range(AT_WORK)
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Median and 95th percentile of its milliseconds, processor time, and its queries."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from benchmarks.database import backend_clock

    with CaptureQueriesContext(connection) as caught:
        work()
    taken, postgres = [], backend_clock()
    python, database = time.process_time(), postgres()
    for _round in range(ROUNDS):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    python, database = time.process_time() - python, postgres() - database
    taken.sort()
    found = {"p50_ms": taken[len(taken) // 2], "p95_ms": taken[round(0.95 * (len(taken) - 1))]}
    found |= {"python_ms": python / ROUNDS * 1000, "postgres_ms": database / ROUNDS * 1000}
    return {name: round(value, 1) for name, value in found.items()} | {"queries": len(caught)}


def measure(waiting: int, sessions: bool) -> dict[str, Any]:
    """All figures; the database is filled unless it was before."""
    import django

    django.setup()
    from django.core.management import call_command

    from webapp.common.pools import TRAIN
    from webapp.common.workers.models import Worker
    from webapp.runs.models import Run
    from webapp.runs.records.order import can_start, first_of
    from webapp.runs.records.queue import read_queue

    call_command("migrate", verbosity=0)
    if not Run.objects.exists():
        fill(waiting, sessions)
    worker = Worker.objects.order_by("name")[0]
    first, shown = first_of(TRAIN, worker), read_queue().pool(TRAIN).in_order
    assert first is not None and first.pk == shown[0].pk
    lanes = Run.objects.filter(state="queued").order_by().values("priority", "project", "created_by").distinct().count()
    return {
        "waiting": Run.objects.filter(state="queued").count(),
        "heads": lanes,
        "load": round(os.getloadavg()[0], 1),
        "claim": timed(lambda: first_of(TRAIN, worker)),
        "oldest": timed(lambda: can_start(TRAIN).order_by("queued_at", "created_at", "pk").values("pk").first()),
        "read": timed(read_queue),
        "foresee": timed(lambda: read_queue().pool(TRAIN).order),
    }


def main() -> int:
    """Start, fill unless filled, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    parser.add_argument("--sessions", action="store_true", help="runs play in environments that are too small")
    options = parser.parse_args()
    with kept_services(options.folder):
        print(json.dumps(measure(options.waiting, options.sessions), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
