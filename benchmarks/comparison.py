"""Comparing 8 evaluations × 500 tasks × 4 tries: ``python benchmarks/comparison.py``.

The rollouts are written into the database of a site of its own, as evaluations leave them. Prints JSON: seconds of the
page, of its list of tasks under another filter, of rewards under a spec of which three components were computed, and of
one task side by side, each asked for 40 times.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.site import Site  # noqa: E402
from benchmarks.tabs import fetch  # noqa: E402

CONTESTANTS, TASKS, TRIES, ASKED = 8, 500, 4, 40
COMPONENTS = [
    {"name": "task_success", "weight": 0.7},
    {"name": "tool_call", "weight": 0.2},
    {"name": "length_penalty", "weight": 0.1},
]


COMPUTED = ("coherence", "length_budget", "repetition")


def fill(origin: str) -> tuple[str, str]:
    """Write the evaluations; the address of their comparison and the cookie of a person who may look."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    django.setup()
    from django.test import Client

    from webapp.datasets.models import Dataset, DatasetState
    from webapp.people.teams.models import Membership, Project, Team, User

    team = Team.objects.create(name="Bench")
    project = Project.objects.create(team=team, name="Bench", slug="bench")
    lines = [
        {"messages": [{"role": "user", "content": f"What is {n} * 7?"}], "category": f"category {n % 12}"}
        for n in range(TASKS)
    ]
    dataset = Dataset.objects.create(project=project, name="tasks", file_name="t", rows=TASKS, state=DatasetState.READY)
    dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
    dataset.rows_path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    ids = [evaluation(project, dataset, number) for number in range(CONTESTANTS)]
    _computed(project)
    person = User.objects.create_user("reader")
    Membership.objects.create(team=team, user=person, role="viewer")
    client = Client()
    client.force_login(person)
    cookie = "; ".join(f"{name}={item.value}" for name, item in client.cookies.items())
    return f"{origin}/p/bench/compare/?" + "&".join(f"c={pk}" for pk in ids), cookie


def evaluation(project: Any, dataset: Any, number: int) -> uuid.UUID:
    from django.utils import timezone

    from training.config import JobConfig
    from webapp.runs.models import Run
    from webapp.runs.rollouts.models import Rollout, Turn

    config = JobConfig.model_validate(
        {"kind": "evaluate", "rollout": {"num_generations": TRIES}, "rewards": {"components": COMPONENTS}}
    ).model_dump(mode="json")
    config["data"]["train"] = dataset.reference
    resolved = config | {"data": config["data"] | {"train": str(dataset.rows_path)}}
    draw, now = random.Random(number), timezone.now()
    run = Run.objects.create(
        project=project, name=f"model-{number}", kind="evaluate", config=config, resolved=resolved,
        state="succeeded", attempt=1,
    )  # fmt: skip
    rollouts = []
    for task in range(TASKS):
        chance = random.Random(task).random() * 0.8 + 0.02 * number
        for index in range(TRIES):
            success = float(draw.random() < chance)
            parts = {"task_success": success, "tool_call": draw.random(), "length_penalty": -draw.random()}
            rollouts.append(
                Rollout(
                    run=run, attempt=1, step=1 + task // 8, group=task % 8, index=index, row=task,
                    task=f"What is {task} * 7?", status="completed", parts=parts, env_parts={"task_success": success},
                    reward=sum(item["weight"] * parts[item["name"]] for item in COMPONENTS), turns=draw.randint(1, 6),
                    tokens=draw.randint(20, 400), calls=2, failed_calls=draw.randint(0, 1), seconds=draw.random() * 9,
                    started_at=now, seq=len(rollouts),
                )
            )  # fmt: skip
    Rollout.objects.bulk_create(rollouts)
    words = [{"role": "user", "content": "What?"}], [{"role": "assistant", "content": "That. " * 40}]
    Turn.objects.bulk_create(
        Turn(rollout=rollout, run=run, number=at, messages=messages, seq=at)
        for rollout in rollouts
        for at, messages in enumerate(words)
    )
    return run.pk


def _computed(project: Any) -> None:
    """A spec with components that no run recorded, and their computed values: one in a hundred cannot be computed."""
    from training.config import RewardComponent
    from training.words import Sentence
    from webapp.evaluation.rescoring.columns import Mark, column_merge
    from webapp.rewards.models import RewardSpec
    from webapp.runs.models import Run

    components = [*COMPONENTS, *({"name": name, "weight": 0.1} for name in COMPUTED)]
    RewardSpec.objects.create(project=project, name="strict", components=components)
    draw, reason = random.Random(7), Sentence("The judge did not answer.")
    for run in Run.objects.filter(project=project):
        rollouts = list(run.rollouts.values_list("pk", flat=True))
        for name in COMPUTED:
            marks = {pk: Mark(None, reason) if draw.random() < 0.01 else Mark(draw.random()) for pk in rollouts}
            column_merge(run, RewardComponent(name=name, weight=0.1), marks)


def ask(address: str, cookie: str) -> dict[str, float]:
    """Median and 95th percentile of the seconds that one page takes, the first request apart."""
    seconds = []
    for _turn in range(ASKED + 1):
        began = time.monotonic()
        content, _size, _answer = fetch(address, cookie)
        seconds.append(time.monotonic() - began)
    assert b"model-7" in content
    first, *rest = seconds
    rest.sort()
    return {
        "first_s": round(first, 3),
        "p50_s": round(rest[len(rest) // 2], 3),
        "p95_s": round(rest[int(0.95 * len(rest))], 3),
    }


def main() -> int:
    """Fill, ask, print."""
    with Site(demo=False) as site:
        origin = f"http://127.0.0.1:{site.port}"
        os.environ["TILTYARD_DATA_DIR"], os.environ["TILTYARD_PORT"] = str(site.data), str(site.port)
        address, cookie = fill(origin)
        path, _query, contestants = address.partition("?")
        found = {
            "contestants": CONTESTANTS,
            "tasks": TASKS,
            "tries": TRIES,
            "page": ask(address, cookie),
            "filter": ask(f"{address}&pair=0-7&tasks=neither", cookie),
            "weighed": ask(f"{address}&spec=reward:strict@1", cookie),
            "task": ask(f"{path}tasks/7/?{contestants}", cookie),
        }
    print(json.dumps({"comparison": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
