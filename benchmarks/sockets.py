"""Five hundred sockets on twenty runs that play at a hundred events a second in all, and tabs that never read.

Starts a Tiltyard of its own with ``manage.py up``. Twenty trainers that only talk write journals, and each is projected
as a worker does it; a process of its own holds the sockets and compares the time in each turn with its own clock. Then
a louder run of large turns is opened by tabs that never read, and the web process is weighed before and after.
Prints one JSON object; progress goes to the standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import Site

RUNS, SOCKETS, EACH_PERSON, EVENTS_A_SECOND, SECONDS = 20, 500, 16, 100, 30
SILENT, LOUD_TURN_BYTES, LOUD_TURNS_A_SECOND = 16, 100_000, 10
WARM_S = 3.0  # at the beginning, while sockets are still being opened


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


# --- The sockets: a process of its own ------------------------------------------------------------------------------
async def watch(jobs: list[dict[str, str]], origin: str, seconds: float) -> dict[str, Any]:
    """Hold a socket for each job and read; how late each turn came, in seconds, and the bytes that did."""
    import websockets

    late: list[float] = []
    counts = {"frames": 0, "bytes": 0, "sockets": 0, "closed": 0}
    until = time.monotonic() + seconds
    counted = time.monotonic() + WARM_S
    door = asyncio.Semaphore(40)

    async def tab(job: dict[str, str]) -> None:
        headers = {"Cookie": job["cookie"]}
        async with door:
            line = await websockets.connect(
                job["socket"], additional_headers=headers, origin=origin, max_size=None, open_timeout=60
            )
        counts["sockets"] += 1
        try:
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                async for text in line:
                    now = time.time()
                    counts["frames"] += 1
                    counts["bytes"] += len(text)
                    frame = json.loads(text)
                    if frame["type"] != "changes" or time.monotonic() < counted:
                        continue
                    for turn in frame.get("turns", []):
                        late.append(now - float(turn["messages"][0]["content"].split()[0]))
                counts["closed"] += 1
        except TimeoutError:
            pass
        finally:
            await line.close()

    await asyncio.gather(*(tab(job) for job in jobs))
    return {"late": late, **counts}


def clients() -> int:
    orders = json.load(sys.stdin)
    print(json.dumps(asyncio.run(watch(orders["jobs"], orders["origin"], orders["seconds"]))))
    return 0


# --- The site and its trainers --------------------------------------------------------------------------------------
class Talker(threading.Thread):
    """A trainer that only talks, and the worker that projects what it says."""

    def __init__(self, project: Any, number: int, turns_a_second: float, size: int) -> None:
        super().__init__(daemon=True)
        from training.journal import Journal
        from webapp.common.storage import attempt_dir
        from webapp.engine.attempts import claim
        from webapp.engine.projection import Projector
        from webapp.runs.models import Run

        self.run_row = Run.objects.create(
            project=project, name=f"talk-{number}", kind="grpo", state="queued", config={}, total_steps=1000
        )
        lease = claim(self.run_row.pk)
        if lease is None:
            raise RuntimeError("Another worker claimed the run.")
        self.lease, self.pause, self.text = lease, 1 / turns_a_second, "x" * size
        self.journal = Journal(attempt_dir(lease.run_id, lease.attempt))
        self.projector = Projector(lease)
        self.ended = threading.Event()
        self.written = 0

    def run(self) -> None:
        from django.db import close_old_connections

        from envs.wire import Message
        from training.journal import RolloutStarted, RunStarted, TurnAdded
        from webapp.engine.attempts import beat
        from webapp.engine.supervisor import GATHER_S

        self.journal.write(RunStarted(kind="grpo", total_steps=1000))
        self.journal.write(RolloutStarted(rollout="r", step=1, group=0, index=0, task="talk"))
        due = projected = beaten = time.monotonic()
        while not self.ended.is_set():
            now = time.monotonic()
            if now >= due:
                due += self.pause
                message = Message(role="assistant", content=f"{time.time()} {self.text}")
                self.journal.write(TurnAdded(rollout="r", turn=self.written, messages=[message], tokens=5))
                self.written += 1
            if now >= projected:
                self.projector.drain()
                projected = now + GATHER_S
            if now >= beaten:
                beat(self.lease)
                beaten = now + 5
            time.sleep(0.01)
        self.projector.drain()
        close_old_connections()


def readers(project: Any, number: int) -> list[str]:
    """The cookies of people who may look."""
    from django.test import Client

    from webapp.people.teams.models import Membership, User

    cookies = []
    for place in range(number):
        person = User.objects.create_user(f"reader{place}")
        Membership.objects.create(team=project.team, user=person, role="viewer")
        client = Client()
        client.force_login(person)
        cookies.append("; ".join(f"{name}={item.value}" for name, item in client.cookies.items()))
    return cookies


def web_process(pid: int) -> Any:
    import psutil

    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "uvicorn webapp" in " ".join(process.cmdline()):
                return process
    raise RuntimeError("There is no web process.")


def run_clients(jobs: list[dict[str, str]], origin: str, seconds: float) -> dict[str, Any]:
    orders = json.dumps({"jobs": jobs, "origin": origin, "seconds": seconds})
    argv = [sys.executable, __file__, "--clients"]
    done = subprocess.run(argv, input=orders, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return dict(json.loads(done.stdout))


async def stare(jobs: list[dict[str, str]], origin: str, seconds: float, web: Any) -> list[int]:
    """Open sockets and never read from them; the web process's own memory each second, in bytes."""
    import websockets

    weights = [web.memory_full_info().uss]
    lines = []
    for job in jobs:
        headers = {"Cookie": job["cookie"]}
        line = await websockets.connect(
            job["socket"], additional_headers=headers, origin=origin, max_size=None, open_timeout=60, max_queue=1
        )
        line.transport.pause_reading()
        lines.append(line)
    for _second in range(int(seconds)):
        await asyncio.sleep(1)
        weights.append(web.memory_full_info().uss)
    for line in lines:
        line.transport.abort()
    return weights


def main() -> int:
    """Print the figures."""
    with Site(demo=False) as site:
        origin = f"http://127.0.0.1:{site.port}"
        os.environ |= {"TILTYARD_DATA_DIR": str(site.data), "TILTYARD_PORT": str(site.port)}
        os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
        import django

        django.setup()
        from webapp.people.teams.models import Project

        project = Project.objects.get()
        cookies = readers(project, SOCKETS // EACH_PERSON + 4)
        web = web_process(site._process.pid)
        talkers = [Talker(project, number, EVENTS_A_SECOND / RUNS, 400) for number in range(RUNS)]
        for talker in talkers:
            talker.start()
        say("the trainers talk")

        def job(run: Any, number: int) -> dict[str, str]:
            address = f"{origin.replace('http', 'ws', 1)}/ws/runs/{run.pk}/"
            return {"socket": address, "cookie": cookies[number % len(cookies)]}

        jobs = [job(talkers[number % RUNS].run_row, number) for number in range(SOCKETS)]
        used, began = web.cpu_times(), time.monotonic()
        found = run_clients(jobs, origin, SECONDS)
        after, took = web.cpu_times(), time.monotonic() - began
        say(f"{found['sockets']} sockets read {found['frames']} frames")
        for talker in talkers:
            talker.ended.set()
            talker.join(20)

        loud = Talker(project, RUNS, LOUD_TURNS_A_SECOND, LOUD_TURN_BYTES)
        loud.start()
        reading = [job(loud.run_row, number) for number in range(2)]
        run_clients(reading, origin, 5)  # what a run of large turns costs with tabs that read
        weights = asyncio.run(stare([job(loud.run_row, 4 + n) for n in range(SILENT)], origin, 20, web))
        loud.ended.set()
        loud.join(20)
    late = sorted(found.pop("late"))
    cuts = quantiles(late, n=100)
    print(
        json.dumps(
            {
                "benchmark": "sockets",
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "runs": RUNS,
                "events_a_second": round(sum(talker.written for talker in talkers) / took, 1),
                **found,
                "turns_seen": len(late),
                "late_s": {"p50": round(median(late), 3), "p95": round(cuts[94], 3), "p99": round(cuts[98], 3)},
                "web_cpu_share": round((after.user + after.system - used.user - used.system) / took, 2),
                "silent_tabs": SILENT,
                "silent_bytes_offered": loud.written * LOUD_TURN_BYTES,
                "silent_mib_each": round((max(weights) - weights[0]) / SILENT / 2**20, 2),
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(clients() if "--clients" in sys.argv else main())
