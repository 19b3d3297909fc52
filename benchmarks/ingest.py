"""How many rollouts a second one run's journal goes through: ``python benchmarks/ingest.py [--rollouts N --turns N]``.

Starts a PostgreSQL of its own that syncs, writes the journal of a run (rollouts of 20 turns by default, 40 messages of
300 characters of mixed words each, groups of eight, a step's metrics), and projects it as a supervisor does: from the
first line to the last commit, words for the search and outcomes included. Prints JSON: rollouts and events for each
second of this process's processor time, that of PostgreSQL's process, and the seconds on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from webapp.common.host import Embedded  # noqa: E402

GROUP = 8
WORDS = [
    f"{a}{b}{c}" for a in ("ba", "to", "ri", "mel") for b in ("n", "st", "k", "lv") for c in ("a", "er", "ing", "o")
]


def text(dice: random.Random, size: int = 300) -> str:
    """Words and numbers as models and tools write them."""
    found = ""
    while len(found) < size:
        found += dice.choice(WORDS) + " " + (f"{dice.randrange(10_000)} " if dice.random() < 0.1 else "")
    return found[:size]


def write_journal(folder: Path, rollouts: int, turns: int) -> int:
    """The journal of one step for each 64 rollouts; how many events it has."""
    from envs.wire import Message
    from training import journal as j
    from training import journal as run_events

    dice, written = random.Random(5), 0
    book = j.Journal(folder)

    def write(event: Any) -> None:
        nonlocal written
        written += 1
        book.write(event)

    write(run_events.RunStarted(kind="grpo", total_steps=rollouts))
    for step in range(1, rollouts // 64 + 1):
        for group in range(64 // GROUP):
            names = [f"a1-s{step}-g{group}-{index}" for index in range(GROUP)]
            for index, name in enumerate(names):
                write(run_events.RolloutStarted(rollout=name, step=step, group=group, index=index, row=group, task="t"))
                for turn in range(turns):
                    exchange = [Message(role="assistant", content=text(dice)), Message(role="user", content=text(dice))]
                    write(run_events.TurnAdded(rollout=name, turn=turn, messages=exchange, tokens=80, seconds=0.2))
                reward = dice.random()
                ended = {"reward": reward, "parts": {"task_success": reward}, "turns": turns, "tokens": 80 * turns}
                write(run_events.RolloutFinished(rollout=name, status="completed", seconds=4.0, **ended))
            advantages = [dice.uniform(-1, 1) for _ in names]
            scored = {"reward_mean": 0.5, "reward_std": 0.1, "zero_variance": False}
            write(run_events.GroupScored(step=step, group=group, rollouts=names, advantages=advantages, **scored))
        write(run_events.Metrics(step=step, values={f"figure/{n}": dice.random() for n in range(78)}))
    book.close()
    return written


def measure(rollouts: int, turns: int) -> dict[str, Any]:
    """Project one run's journal."""
    import psutil
    from django.db import connection
    from django.utils import timezone

    from webapp.common.storage import attempt_dir
    from webapp.engine.history import Lease
    from webapp.engine.projection import Projector
    from webapp.people.teams.models import Project, Team
    from webapp.runs.models import Attempt, Run
    from webapp.runs.rollouts.models import Rollout, Turn

    project = Project.objects.create(team=Team.objects.create(name="t"), name="p", slug="p")
    config = {"kind": "grpo", "rewards": {"components": [{"name": "task_success", "weight": 1.0}]}}
    run = Run.objects.create(
        project=project, name="r", kind="grpo", state="preparing", config=config, attempt=1, lease_owner="bench"
    )
    Attempt.objects.create(run=run, number=1, owner="bench", started_at=timezone.now())
    folder = attempt_dir(run.pk, 1)
    folder.mkdir(parents=True)
    events = write_journal(folder, rollouts, turns)
    projector = Projector(Lease(run.pk, 1, "bench"))
    server = psutil.Process(connection.connection.info.backend_pid)
    asked = sum(server.cpu_times()[:2])
    began, spent = time.monotonic(), time.process_time()
    projector.drain()
    used, took = time.process_time() - spent, time.monotonic() - began
    assert (Rollout.objects.count(), Turn.objects.count()) == (rollouts, rollouts * turns)
    return {
        "rollouts": rollouts,
        "turns_a_rollout": turns,
        "events": events,
        "journal_mb": round((folder / "journal.jsonl").stat().st_size / 1e6, 1),
        "rollouts_a_cpu_second": round(rollouts / used, 1),
        "us_an_event": round(1e6 * used / events),
        "clock_s": round(took, 2),
        "cpu_s": round(used, 2),
        "database_cpu_s": round(sum(server.cpu_times()[:2]) - asked, 2),
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=384, help="a multiple of 64 (default 384)")
    parser.add_argument("--turns", type=int, default=20, help="of each (default 20)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, not JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiltyard-bench-") as folder:
        services = Embedded(Path(folder), durable=True)
        services.start()
        os.environ |= {
            "DATABASE_URL": services.database_url,
            "REDIS_URL": services.redis_url,
            "TILTYARD_DATA_DIR": str(Path(folder) / "data"),
            "DJANGO_SETTINGS_MODULE": "webapp.settings",
        }
        import django
        from django.core.management import call_command

        try:
            django.setup()
            call_command("migrate", verbosity=0)
            if options.profile:
                import cProfile

                cProfile.runctx("measure(options.rollouts, options.turns)", globals(), locals(), sort="tottime")
                return
            found = measure(options.rollouts, options.turns)
        finally:
            services.stop()
    about = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({"benchmark": "ingest", **about, **found}))


if __name__ == "__main__":
    main()
