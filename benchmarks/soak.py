"""An ordinary busy hour of one site: ``python benchmarks/soak.py [--minutes 60]``; with ``--calm`` nothing but tabs and
requests, as ``--tabs 2000 --people 2 --minutes 5 --calm``.

A ``manage.py up`` with its default settings and four training workers, on one disk. Trainers that train nothing
(``tests/chaos/stub_trainer.py``) write the journals of four runs; 500 tabs are open on these; fifty people ask for
pages and API answers, once a second each where the site is quick enough. Meanwhile datasets are uploaded and deleted,
runs imported and deleted, evaluations rescored, by the client that people use (``client/``), and each service is ended
once and must come back by itself. Each minute the memory of each program is weighed. A line for what happens goes to
the standard error, the figures are printed as JSON; 1 if anything was answered by an error that is not named, lost, or
grows.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

from benchmarks.site import Site  # noqa: E402

TABS, TABS_EACH, PEOPLE, RUNS = 500, 20, 50, 4
STEP_MS, ROLLOUTS = 2000, 8
EVALUATED = 200
BACK_LIMIT_S = 120.0
GROWTH_MB = 30.0  # what a process may gain from the first to the last third of its life
ENOUGH = 9  # samples, three in each third
LOADS_S = 300.0  # of this life the time in which it imports what it needs is left out, where enough of it is left
SERVICES = {
    "web": ("-m uvicorn", signal.SIGTERM),
    "clockwork": ("run_clockwork", signal.SIGTERM),
    "keeper": ("keep_environments", signal.SIGTERM),
    "worker-short": ("short@", signal.SIGTERM),
    "worker-long": ("long@", signal.SIGTERM),
    "worker-endpoint": ("endpoint@", signal.SIGTERM),
    "worker-train-0": ("train-0@", signal.SIGTERM),
    "worker-train-1": ("train-1@", signal.SIGKILL),
    "redis": ("redis-server", signal.SIGTERM),
    "postgres": ("/postgres ", signal.SIGINT),
}
"""Words of the command line, and how it is ended: PostgreSQL's own processes leave by its orders."""


class Soak:
    """The site, its runs, and what is done to it."""

    def __init__(self, site: Site, seconds: float, tabs: int, people: int) -> None:
        self.site, self.seconds, self.tabs, self.people = site, seconds, tabs, people
        self.began = time.monotonic()
        self.memory: dict[str, list[tuple[int, float, float]]] = {}  # process, its age in s, MB
        self.restarts: list[dict[str, Any]] = []

    def say(self, what: str) -> None:
        """A line with the time since the start."""
        print(f"{time.monotonic() - self.began:7.1f} s  {what}", file=sys.stderr, flush=True)

    # --- Before ---------------------------------------------------------------------------------------------------
    def fill(self) -> dict[str, Any]:
        """Runs, an evaluation, and people; the orders for the lookers. Only now Django knows its database."""
        import django

        django.setup()
        from webapp.datasets.models import Dataset, DatasetState
        from webapp.endpoints.models import Endpoint
        from webapp.engine import history
        from webapp.environments.models import Environment
        from webapp.people.teams.models import Project, User
        from webapp.people.teams.tokens import token_create
        from webapp.runs.nudge import Nudger

        # The site's own outbox sends the nudges: this process knows another broker.
        history._send_message, Nudger.put = lambda row: False, lambda *_: None  # type: ignore[assignment,method-assign]
        self.user, self.project = User.objects.get(), Project.objects.get()
        self.token = token_create(user=self.user, name="soak", role="owner")[1]
        dataset = Dataset.objects.create(project=self.project, name="d", state=DatasetState.READY, file_name="d")
        dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
        dataset.rows_path.write_text("{}\n")
        Environment.objects.create(project=self.project, name="e", url="http://127.0.0.1:1", server_name="e")
        Endpoint.objects.create(project=self.project, name="gpt", url="http://127.0.0.1:1/v1", model="m")
        steps = int(self.seconds * 1000 / STEP_MS) * 4  # more than it can make: it is stopped at the end
        script = f"sleep-{STEP_MS}/rollouts-{ROLLOUTS}"
        self.runs = [self._run(f"run {n + 1}", "starter", script, steps, 50) for n in range(RUNS)]
        self.evaluation = self._run("evaluation", "endpoint:gpt", "sleep-1/rollouts-2", EVALUATED // 2, 0)
        self.wait("all runs are at work", self._at_work)
        return self._orders()

    def _run(self, name: str, source: str, script: str, steps: int, save_every: int) -> Any:
        from training.config import JobConfig
        from webapp.engine.services import run_create

        config = {
            "kind": "evaluate" if source.startswith("endpoint:") else "grpo",
            "model": {"source": source, "revision": script},
            "data": {"train": "dataset:d@1"},
            "environment": {"name": "environment:e"},
            "run": {"max_steps": steps, "save_every": save_every},
        }
        return run_create(project=self.project, user=self.user, name=name, config=JobConfig.model_validate(config))

    def _at_work(self) -> bool:
        for run in (*self.runs, self.evaluation):
            run.refresh_from_db()
        return all(run.step > 1 for run in self.runs) and self.evaluation.state == "succeeded"

    def wait(self, what: str, check: Any, limit_s: float = 300) -> None:
        """Wait until it is so. Raises ``RuntimeError``."""
        deadline = time.monotonic() + limit_s
        while not check():
            if time.monotonic() > deadline:
                raise RuntimeError(f"Not within {limit_s:g} s: {what}.\n" + "\n".join(self.site.lines[-20:]))
            time.sleep(0.5)

    def _orders(self) -> dict[str, Any]:
        from benchmarks.sockets import readers

        origin = f"http://127.0.0.1:{self.site.port}"
        people = readers(self.project, max(-(-self.tabs // TABS_EACH), self.people))
        slug, ids = self.project.slug, [str(run.pk) for run in self.runs]
        tabs = [
            {
                "socket": f"{origin.replace('http', 'ws', 1)}/ws/runs/{ids[number % RUNS]}/",
                "cookie": people[number // TABS_EACH],
            }
            for number in range(self.tabs)
        ]
        addresses = [
            *(f"/p/{slug}/", f"/p/{slug}/runs/", f"/p/{slug}/datasets/", f"/p/{slug}/models/", "/readyz"),
            *(f"/p/{slug}/runs/{run}/" for run in ids),
            *(f"/p/{slug}/runs/{run}/rollouts/" for run in ids[:2]),
            *(f"/api/v1/runs/{run}" for run in ids),
            *(f"/api/v1/runs/{run}/rollouts" for run in ids),
            *(f"/api/v1/projects/{slug}/{kind}" for kind in ("runs", "datasets", "rewards", "models")),
        ]
        return {"origin": origin, "tabs": tabs, "people": people[: self.people], "addresses": addresses}

    # --- Meanwhile ------------------------------------------------------------------------------------------------
    def program(self, words: str) -> Any:
        """The process with these words in its command line, as supervisord's own child; ``None`` while it is away."""
        import psutil

        try:
            head = psutil.Process(int((self.site.data / "supervisord.pid").read_text()))
            return next((one for one in head.children() if words in " ".join(one.cmdline())), None)
        except (psutil.Error, OSError, ValueError):
            return None

    def weigh(self) -> None:
        """Memory that is a program's own, its children but trainers included, in MB."""
        import psutil

        names = {name: words for name, (words, _end) in SERVICES.items()}
        names |= {f"worker-train-{n}": f"train-{n}@" for n in range(RUNS)}
        for name, words in names.items():
            if (head := self.program(words)) is None:
                continue
            own = 0
            try:
                for one in (head, *head.children(recursive=True)):
                    if "stub_trainer" not in " ".join(one.cmdline()):
                        own += one.memory_full_info().uss
            except psutil.Error:
                continue
            self.memory.setdefault(name, []).append((head.pid, time.time() - head.create_time(), own / 1e6))

    def restart(self, name: str) -> None:
        """End a service and wait until supervision has brought it back."""
        words, end = SERVICES[name]
        old = self.program(words)
        if old is None:
            raise RuntimeError(f"There is no {name}.")
        began = time.monotonic()
        old.send_signal(end)

        def back() -> bool:
            new = self.program(words)
            return new is not None and new.pid != old.pid

        self.wait(f"{name} is back", back, 400)
        took = time.monotonic() - began
        self.restarts.append({"service": name, "signal": end.name, "back_after_s": round(took, 1)})
        self.say(f"{name} ended by {end.name}, another one {took:.1f} s later")

    def live(self, *, calm: bool) -> None:
        """Services end one after another, unless it is to be calm; memory is weighed each minute, or forty times."""
        every = min(60.0, self.seconds / 40)
        names = [] if calm else list(SERVICES)
        plan = [(self.seconds * (0.1 + 0.7 * n / len(SERVICES)), name) for n, name in enumerate(names)]
        began = weighed = time.monotonic()
        while (now := time.monotonic() - began) < self.seconds:
            if plan and now >= plan[0][0]:
                self.restart(plan.pop(0)[1])
            if time.monotonic() >= weighed:
                self.weigh()
                weighed = time.monotonic() + every
            time.sleep(1)

    # --- After ----------------------------------------------------------------------------------------------------
    def growth(self) -> dict[str, dict[str, float]]:
        """For each program: what the process that lived longest weighed, in the thirds of its life once loaded."""
        found = {}
        for name, weights in self.memory.items():
            lives: dict[int, list[tuple[float, float]]] = {}
            for pid, age, weight in weights:
                lives.setdefault(pid, []).append((age, weight))
            life = max(lives.values(), key=len)
            loaded = [weight for age, weight in life if age >= LOADS_S]
            longest = loaded if len(loaded) >= ENOUGH else [weight for _age, weight in life]
            third = max(1, len(longest) // 3)
            first, last = median(longest[:third]), median(longest[-third:])
            found[name] = {
                "samples": len(longest),
                "left_out": len(life) - len(longest),
                "first_third_mb": round(first),
                "middle_third_mb": round(median(longest[third:-third] or longest)),
                "last_third_mb": round(last),
                "gained_mb": round(last - first, 1),
            }
        return found

    def end(self) -> dict[str, Any]:
        """Stop the runs; what the database has against what their journals say."""
        from django.db import connections

        from tests.chaos.storm import losses
        from tests.chaos.truth import assert_exact
        from webapp.engine.services import run_stop
        from webapp.runs.rollouts.models import Rollout
        from webapp.runs.states import TERMINAL

        connections["default"].close()  # PostgreSQL has been ended meanwhile
        for run in self.runs:
            run_stop(run=run)

        def ended() -> bool:
            for run in self.runs:
                run.refresh_from_db()
            return all(run.state in TERMINAL for run in self.runs)

        self.wait("the runs have stopped", ended)
        wrong = {}
        for run in (*self.runs, self.evaluation):
            try:
                assert_exact(run)
            except AssertionError as exc:
                wrong[run.name] = str(exc)[:200]
        lost = [steps for run in self.runs for steps, _seconds in losses(run)]
        return {
            "runs": {run.name: {"state": run.state, "steps": run.step, "attempts": run.attempt} for run in self.runs},
            "rollouts": Rollout.objects.filter(run__in=self.runs).count(),
            "most_steps_trained_again": max(lost, default=0),
            "database_is_journal": not wrong,
            "differences": wrong,
        }


def soak(minutes: float, tabs: int, people: int, *, calm: bool) -> dict[str, Any]:
    """One soak; its figures."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}  # as with four devices: a training worker for each
    with Site(demo=False, settings="tests.chaos.settings") as site:
        os.environ |= {"TILTYARD_DATA_DIR": str(site.data), "TILTYARD_PORT": str(site.port)}
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
        one = Soak(site, minutes * 60, tabs, people)
        orders = one.fill()
        one.say("all runs are at work")
        from benchmarks.soak_acts import Acts

        load = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("soak_load.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert load.stdin is not None  # it was opened as a pipe
        load.stdin.write(json.dumps(orders) + "\n")
        load.stdin.flush()
        acts = Acts(orders["origin"], one.token, one.project.slug, str(one.evaluation.pk), one.say)
        threads = [threading.Thread(target=act, daemon=True) for act in acts.all if not calm]
        for thread in threads:
            thread.start()
        try:
            one.live(calm=calm)
            acts.ended.set()
            for thread in threads:
                thread.join(300)
            looked = json.loads(load.communicate(timeout=120)[0])
        finally:
            if load.poll() is None:
                load.kill()
        figures = one.end()
        return {
            "minutes": minutes,
            "people": people,
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            **looked,
            "acts": acts.report(),
            "acts_unfinished": sum(thread.is_alive() for thread in threads),
            "restarts": one.restarts,
            **figures,
            "memory": one.growth(),
        }


def wrong_in(figures: dict[str, Any]) -> list[str]:
    """Sentences on figures that are not allowed."""
    found = [f"{what}: {n}" for what, n in figures["wrong"].items() if " 503 " not in what or what.endswith(" 503 ")]
    refused = figures["tabs"]["not_opened"].items()
    found += [f"sockets, {what}: {n}" for what, n in refused if what.startswith("HTTP ") and what != "HTTP 503"]
    found += figures["acts"]["wrong"]
    found += [
        f"{name} grows by {row['gained_mb']} MB"
        for name, row in figures["memory"].items()
        if row["gained_mb"] > GROWTH_MB
    ]
    found += [f"{run}: {what}" for run, what in figures["differences"].items()]
    return found + (["an act has not ended"] if figures["acts_unfinished"] else [])


def main() -> int:
    """Print the figures; 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--tabs", type=int, default=TABS)
    parser.add_argument("--people", type=int, default=PEOPLE, help="who ask for something once a second each")
    parser.add_argument("--calm", action="store_true", help="no work, and no service is ended")
    asked = parser.parse_args()
    figures = soak(asked.minutes, asked.tabs, asked.people, calm=asked.calm)
    problems = wrong_in(figures)
    print(json.dumps({"soak": figures, "problems": problems}))
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
