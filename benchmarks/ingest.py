"""How many rollouts a second journals go through: ``python benchmarks/ingest.py [--rollouts N --turns N] [--hosts N]``.

Starts a PostgreSQL of its own that syncs, writes the journal of a run (rollouts of 20 turns by default, 40 messages of
300 characters of mixed words each, groups of eight, a step's metrics), and projects it as a supervisor does: from the
first line to the last commit, words for the search and outcomes included. Prints JSON: rollouts and events for each
second of this process's processor time, that of PostgreSQL's process, and the seconds on the clock.

With ``--hosts`` each of so many processes is a training host with a data folder of its own, a journal of so many
rollouts and an S3 server (moto's) in between: a courier ships the journal, and only what was shipped is projected, as
on such a host. Prints the rollouts a second on the clock of all hosts together, and the processor time of each part.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
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


def make_runs(count: int) -> list[Any]:
    """Runs whose first attempt has begun."""
    from django.utils import timezone

    from webapp.people.teams.models import Project, Team
    from webapp.runs.models import Attempt, Run

    project = Project.objects.create(team=Team.objects.create(name="t"), name="p", slug="p")
    config = {"kind": "grpo", "rewards": {"components": [{"name": "task_success", "weight": 1.0}]}}
    began = {"kind": "grpo", "state": "preparing", "config": config, "attempt": 1, "lease_owner": "bench"}
    runs = [Run.objects.create(project=project, name=f"r{number}", **began) for number in range(count)]
    for run in runs:
        Attempt.objects.create(run=run, number=1, owner="bench", started_at=timezone.now())
    return runs


def measure(rollouts: int, turns: int) -> dict[str, Any]:
    """Project one run's journal."""
    import psutil
    from django.db import connection

    from webapp.common.storage import attempt_dir
    from webapp.engine.history import Lease
    from webapp.engine.projection import Projector
    from webapp.runs.rollouts.models import Rollout, Turn

    [run] = make_runs(1)
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


def measure_hosts(hosts: int, rollouts: int, turns: int) -> dict[str, Any]:
    """Have so many hosts send and project a journal each at the same time."""
    import psutil
    from django.db import connection

    from tests.s3 import BUCKET, s3_server
    from webapp.runs.rollouts.models import Rollout, Turn

    runs = make_runs(hosts)
    sizes = ["--rollouts", str(rollouts), "--turns", str(turns)]
    with s3_server() as address:
        store = {"TILTYARD_FILES": f"s3://{BUCKET}/site", "TILTYARD_FILES_ENDPOINT": address}
        access = {"TILTYARD_FILES_KEY_ID": "k", "TILTYARD_FILES_SECRET": "s", "TILTYARD_FILES_REGION": "us-east-1"}
        started = []
        for run in runs:
            disk = {"TILTYARD_DATA_DIR": f"{os.environ['TILTYARD_DATA_DIR']}-{run.pk}"}
            command = [sys.executable, __file__, "--as-host", str(run.pk), *sizes]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            started.append(subprocess.Popen(command, env=os.environ | store | access | disk, text=True, **pipes))
        for child in started:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        port = address.rpartition(":")[2]
        [store_server] = [each for each in psutil.Process().children() if port in each.cmdline()]
        servers = {"database": psutil.Process(connection.connection.info.backend_pid).parent(), "store": store_server}
        asked, began = {name: _cpu_s(each) for name, each in servers.items()}, time.monotonic()
        for child in started:
            assert child.stdin is not None
            print("go", file=child.stdin, flush=True)
        found = [json.loads(child.communicate()[0]) for child in started]
        took = time.monotonic() - began
        spent = {name: round(_cpu_s(each) - asked[name], 2) for name, each in servers.items()}
    count = hosts * rollouts
    assert (Rollout.objects.count(), Turn.objects.count()) == (count, count * turns)
    slowest = max(each["clock_s"] for each in found)
    return {
        "hosts": hosts,
        "rollouts": count,
        "turns_a_rollout": turns,
        "rollouts_a_second": round(count / slowest, 1),
        "clock_s": slowest,
        "with_starts_s": round(took, 2),
        "cpu_s_of_hosts": [each["cpu_s"] for each in found],
        "cpu_s_of_servers": spent,
    }


def _cpu_s(process: Any) -> float:
    """Seconds of processor time of a server and of its processes that have ended."""
    return float(sum(process.cpu_times()[:4]))


def be_host(run_id: str, rollouts: int, turns: int) -> dict[str, float]:
    """Write a journal, wait for a line, then ship and project it as a supervisor does."""
    from uuid import UUID

    from webapp.common.storage import attempt_dir
    from webapp.engine.courier import Courier
    from webapp.engine.history import Lease
    from webapp.engine.projection import Projector

    folder = attempt_dir(UUID(run_id), 1)
    folder.mkdir(parents=True)
    write_journal(folder, rollouts, turns)
    whole = (folder / "journal.jsonl").stat().st_size
    projector, courier = Projector(Lease(UUID(run_id), 1, "bench")), Courier(UUID(run_id), 1, print)
    projector.shipped = lambda: courier.shipped
    print("ready", flush=True)
    sys.stdin.readline()
    began, spent = time.monotonic(), time.process_time()
    courier.start()
    while courier.shipped < whole or projector.step():
        if not projector.step():
            time.sleep(0.02)
    courier.end()
    return {"clock_s": round(time.monotonic() - began, 2), "cpu_s": round(time.process_time() - spent, 2)}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=384, help="a multiple of 64 (default 384)")
    parser.add_argument("--turns", type=int, default=20, help="of each (default 20)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, not JSON")
    parser.add_argument("--hosts", type=int, default=0, help="so many hosts with S3, each with as many rollouts")
    parser.add_argument("--as-host", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_host:
        import django

        django.setup()
        print(json.dumps(be_host(options.as_host, options.rollouts, options.turns)))
        return
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
            sizes = (options.rollouts, options.turns)
            found = measure_hosts(options.hosts, *sizes) if options.hosts else measure(*sizes)
        finally:
            services.stop()
    about = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({"benchmark": "ingest", **about, **found}))


if __name__ == "__main__":
    main()
