"""How long does the reward lab take? ``python benchmarks/lab.py [--rollouts 10000]``.

On a whole site a run gets so many recorded rollouts, a worker makes a set of them, and the page's request is sent over
HTTP: with moved weights, with a component that was not computed yet, with a page of groups in another order. Prints
JSON: seconds of the building, p50 and p95 of the answers in milliseconds, and the size of the set.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.site import Site  # noqa: E402

NAMES = ("tool_call_correctness", "tool_necessity", "result_use", "final_answer", "coherence", "task_success")
UNRECORDED = ("toolbench_format", "repetition", "language", "tool_call_budget", "length_budget")
SIZE, GROUPS = 8, 8
ROUNDS = 60
TARGETS = {"moved_weights_p95_ms": 300, "changed_component_ms": 3000, "rollouts": 10_000}
BUILD_LIMIT_S = 1800
STATE = "from webapp.rewards.models import RolloutSet; print(RolloutSet.objects.get(pk='{pk}').state)"
MAKE = "from benchmarks.lab import make; make({rollouts})"


def make(rollouts: int) -> None:
    """Record a run inside the site's Django, have its set made, and print where it is and who may ask."""
    from django.contrib.sessions.backends.db import SessionStore
    from django.test import Client
    from django.urls import reverse

    from training.config import JobConfig, RewardComponent
    from webapp.people.teams.models import Project, Team, User
    from webapp.rewards.lab.sets import rollout_set_create
    from webapp.runs.models import Run

    team = Team.objects.order_by("pk")[0]
    project, _new = Project.objects.get_or_create(team=team, slug="lab", defaults={"name": "Lab"})
    user = User.objects.filter(memberships__team=team)[0]
    config = JobConfig()
    config.rewards.components = [RewardComponent(name=name, weight=1) for name in NAMES]
    plain = config.model_dump(mode="json")
    run = Run.objects.create(project=project, name=f"lab-{rollouts}", config=plain, resolved=plain, created_by=user)
    _record(run, rollouts)
    made = rollout_set_create(project=project, user=user, name=f"set {rollouts}", kind="run", run=run)
    client = Client()
    client.force_login(user)
    print(
        json.dumps(
            {
                "set": str(made.pk),
                "session": client.session.session_key,
                "store": SessionStore.__module__,
                "path": reverse("lab-score", args=[project.slug, made.pk]),
            }
        )
    )


def _record(run: Any, rollouts: int) -> None:
    """Rollouts of two calls and an answer, about 2.5 kB each, in steps of 64."""
    import random
    import uuid

    from django.utils import timezone

    from webapp.runs.rollouts.models import Rollout, Turn

    rng, now = random.Random(rollouts), timezone.now()
    words = [f"word{number}" for number in range(500)]
    for begin in range(0, rollouts, 2000):
        rows, turns = [], []
        for number in range(begin, min(rollouts, begin + 2000)):
            group, index = divmod(number, SIZE)
            success = float(rng.random() < 0.4)
            parts = {name: round(rng.random(), 3) for name in NAMES[:5]} | {"task_success": success}
            rows.append(
                Rollout(
                    id=uuid.UUID(int=rng.getrandbits(128)),
                    run=run,
                    attempt=1,
                    step=1 + group // GROUPS,
                    group=group % GROUPS,
                    index=index,
                    task=f"Task {group}",
                    status="completed",
                    reward=sum(parts.values()),
                    parts=parts,
                    env_reward=success,
                    tokens=rng.randint(50, 400),
                    turns=3,
                    started_at=now,
                    seq=number,
                )
            )
            turns += [
                Turn(rollout=rows[-1], run=run, number=place, messages=turn_messages, seq=number)
                for place, turn_messages in enumerate(_turns(rng, words))
            ]
        Rollout.objects.bulk_create(rows)
        Turn.objects.bulk_create(turns)


def _turns(rng: Any, words: list[str]) -> list[list[dict[str, Any]]]:
    def text(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    turns: list[list[dict[str, Any]]] = [
        [{"role": "system", "content": text(60)}, {"role": "user", "content": text(25)}]
    ]
    for number in range(2):
        call = {"id": str(number), "name": "search", "arguments": {"q": text(3)}}
        turns += [
            [{"role": "assistant", "content": text(20), "tool_calls": [call]}],
            [{"role": "tool", "content": text(60), "tool_call_id": str(number)}],
        ]
    return [*turns, [{"role": "assistant", "content": text(50)}]]


class Lab:
    """The page's request to one set."""

    def __init__(self, site: Site, made: dict[str, str]) -> None:
        token = "c" * 32
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{site.port}",
            timeout=120,
            headers={"X-CSRFToken": token},
            cookies={"tiltyard": made["session"], "tiltyard-csrf": token},
        )
        self._path = made["path"]

    def ask(self, components: list[dict[str, Any]], **more: Any) -> tuple[float, dict[str, Any]]:
        """Milliseconds until the whole answer is there, asking again while values are computed."""
        began = time.perf_counter()
        answer = self._client.post(self._path, json={"components": components, **more})
        while answer.status_code == 202:
            time.sleep(0.2)
            answer = self._client.post(self._path, json={"components": components, **more})
        answer.raise_for_status()
        return (time.perf_counter() - began) * 1000, answer.json()

    def moved(self, rounds: int, **more: Any) -> dict[str, float]:
        """Percentiles of answers to weights that were never sent before."""
        waits = []
        for number in range(rounds):
            components = [{"name": name, "weight": 1 + number / 100, "clip": [0, 0.9]} for name in NAMES]
            waits.append(self.ask(components, **more)[0])
        cuts = statistics.quantiles(waits, n=20)
        return {"p50_ms": round(statistics.median(waits), 1), "p95_ms": round(cuts[18], 1)}


def measure(site: Site, rollouts: int) -> dict[str, Any]:
    """All figures of one size."""
    made = json.loads(site.shell(MAKE.format(rollouts=rollouts), timeout=1800).splitlines()[-1])
    began, state = time.monotonic(), ""
    lookup = (
        f"from webapp.rewards.models import RolloutSet; print(RolloutSet.objects.filter(pk='{made['set']}')[0].state)"
    )
    while state != "ready":
        if state == "failed" or time.monotonic() - began > BUILD_LIMIT_S:
            raise RuntimeError(f"the set is {state}")
        time.sleep(0.5)
        state = site.shell(lookup)
    build_s = time.monotonic() - began
    lab, plain = Lab(site, made), [{"name": name, "weight": 1} for name in NAMES]
    first_ms, reply = lab.ask(plain)
    changed = [round(lab.ask([*plain, {"name": name, "weight": 1}])[0]) for name in UNRECORDED]
    rounds = ROUNDS if rollouts <= 20_000 else 20
    folder = site.data / "rollout-sets" / made["set"]
    return {
        "rollouts": reply["summary"]["rollouts"],
        "groups": reply["summary"]["groups"],
        "set_mib": round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20, 1),
        "reply_kib": round(len(json.dumps(reply)) / 1024),
        "build_s": round(build_s, 1),
        "first_ms": round(first_ms),
        "moved_weights": lab.moved(rounds),
        "two_specs": lab.moved(rounds, against=plain),
        "fifty_groups_by_spread": lab.moved(rounds, limit=50, sort="spread", offset=100),
        "changed_component_ms": dict(zip(UNRECORDED, changed, strict=True)),
    }


def main() -> int:
    """Measure each size on one site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[10_000, 100_000])
    options = parser.parse_args()
    with Site(demo=False) as site:
        sizes = []
        for rollouts in options.rollouts:
            sizes.append(measure(site, rollouts))
            print(json.dumps(sizes[-1]), file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "benchmark": "lab",
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "components": len(NAMES),
                "sizes": sizes,
                "targets": TARGETS,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
