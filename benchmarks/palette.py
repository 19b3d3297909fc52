"""How fast the palette answers while a person types: ``python benchmarks/palette.py``.

Starts a PostgreSQL of its own and writes a project of 10,000 runs: twenty of them, spread over all, played a million
turns (``inspector_rows.py``), half of these in one run. Then it asks over HTTP what people type: parts of names, rare
and common words, Chinese, what is nowhere, signs. Prints JSON: the median and the 95th percentile of the milliseconds
of each query and of all of them, the first time among them, the mean of the processor's milliseconds of Python and of
PostgreSQL, which a busy machine disturbs least, and how many results each group has.
``--turns 100000`` and ``--runs 1000`` write fewer, ``--folder F`` keeps the database for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

ROUNDS, PLAYED = 12, 20
PARTS = ("names", "texts")
QUERIES = {
    "nothing typed": "",
    "one letter": "n",
    "one Chinese character": "天",
    "a percent sign": "%",
    "part of a run's name": "night-93",
    "a whole name": "night-9312",
    "a common word": "answer",
    "a common word, longer": "calculator",
    "two common words": "question number",
    "three common words, rarely in this order": "answer question number",
    "a rare word": "error42",
    "numbers": "9 * 5",
    "Chinese": "天气",
    "Chinese, rare": "下雨温度大约",
    "an option": "learning rate",
    "nowhere": "nothing like this",
    "nowhere, one word": "zyzzyva",
    "200 characters": "calculator returned " * 10,
}


def fill(runs: int, turns: int) -> None:
    """The project, and objects of the other kinds."""
    from django.db import connection
    from django.utils import timezone

    from benchmarks.inspector_rows import GROUP, GROUPS, TURNS, write
    from benchmarks.inspector_rows import fill as fill_one
    from training.config import JobConfig
    from webapp.datasets.models import Dataset
    from webapp.runs.advisories.models import Examination
    from webapp.runs.models import Run

    large = fill_one(turns // 2).run
    config, rng, now = JobConfig().model_dump(mode="json"), random.Random(11), timezone.now()
    fields = {"project": large.project, "kind": "grpo", "config": config, "state": "succeeded", "attempt": 1}
    made = [Run(name=f"{'夜间' if n % 50 == 0 else 'night'}-{n}", **fields) for n in range(runs - 1)]
    Run.objects.bulk_create(made, batch_size=1000)
    every = max(1, runs // PLAYED)
    played = made[::every][: PLAYED - 1]
    steps = max(1, turns // 2 // len(played) // (GROUP * GROUPS * TURNS))
    for run in played:
        write(rng, run, range(steps))
    for number, run in enumerate([*made, large]):
        run.created_at = now - timedelta(minutes=len(made) - number)
    Run.objects.bulk_update([*made, large], ["created_at"], batch_size=1000)
    seen = {"step": 1, "memory": {"steps": [0.5] * 500}, "diagnosis": {"kind": "early", "steps": 3}}
    Examination.objects.bulk_create([Examination(run=run, **seen) for run in made], batch_size=1000)
    Dataset.objects.bulk_create(
        Dataset(project=large.project, name=f"tasks-{number // 3}", version=number % 3 + 1, state="ready")
        for number in range(600)
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def measure() -> dict[str, Any]:
    """All figures; the database is filled."""
    from django.conf import settings
    from django.test import Client

    from benchmarks.database import backend_clock
    from webapp.people.teams.models import User
    from webapp.runs.models import Run
    from webapp.runs.rollouts.models import Turn

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(User.objects.get(username="reader"))
    postgres = backend_clock()

    def taken_by(phrase: str, part: str) -> tuple[list[float], dict[str, Any]]:
        address = f"/p/bench/palette/?{urlencode({'q': phrase, 'part': part})}"
        taken: list[float] = []
        worked = (time.process_time(), postgres())
        for _round in range(1 + ROUNDS):
            began = time.perf_counter()
            answer = client.get(address)
            taken.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.content
        python, database = time.process_time() - worked[0], postgres() - worked[1]
        groups = {group["title"]: len(group["items"]) for group in answer.json()["groups"] if group["items"]}
        work = {"python_ms": python / len(taken) * 1000, "postgres_ms": database / len(taken) * 1000}
        return taken, {name: round(value, 1) for name, value in work.items()} | {"found": groups}

    client.get("/p/bench/palette/")  # imports what a web server has imported long before
    sizes = {"runs": Run.objects.count(), "turns": Turn.objects.count(), "load": os.getloadavg()[0]}
    return sizes | {part: _part({name: taken_by(text, part) for name, text in QUERIES.items()}) for part in PARTS}


def _part(found: dict[str, tuple[list[float], dict[str, Any]]]) -> dict[str, Any]:
    """The figures of all queries together, and of each."""
    every = [one for taken, _more in found.values() for one in taken]
    each = {name: {"first_ms": round(taken[0], 1)} | _quantiles(taken) | more for name, (taken, more) in found.items()}
    return {"all": _quantiles(every), "queries": each}


def _quantiles(taken: list[float]) -> dict[str, float]:
    taken = sorted(taken)
    return {"p50_ms": round(taken[len(taken) // 2], 1), "p95_ms": round(taken[round(0.95 * (len(taken) - 1))], 1)}


def main() -> int:
    """Start, fill unless filled, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where the database is kept for the next time")
    options = parser.parse_args()
    with kept_services(options.folder):
        print(json.dumps(_measured(options.runs, options.turns), ensure_ascii=False, indent=1))
    return 0


def _measured(runs: int, turns: int) -> dict[str, Any]:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from webapp.runs.models import Run

    began = time.perf_counter()
    if not Run.objects.exists():
        fill(runs, turns)
    return {"fill_s": round(time.perf_counter() - began, 1)} | measure()


if __name__ == "__main__":
    sys.exit(main())
