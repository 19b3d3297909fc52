"""The pages that people open most, of runs that no one planned for: nothing overflows, axe finds nothing, no script
fails, in light and dark, in Chinese, and on a phone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.browser.test_every_page import Walk, served
from tests.webapp.results.conftest import Ended, ended, points
from training.config import JobConfig
from webapp.common.words import Outcome
from webapp.foreign.models import ImportState, RunImport
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutGroup, RolloutStatus, Turn
from webapp.runs.states import RunState

__all__ = ["ended", "served"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]
LONG = "name-" + "x" * 75
RIGHT_TO_LEFT = "مرحبا، الجواب هو ٤٢ وليس ٤١ " * 8
CHINESE = "答案是四十二，而不是四十一。" * 20
FORMS = {
    "light": (1440, "en-US", "light"),
    "dark": (1440, "en-US", "dark"),
    "zh": (1440, "zh-CN", "light"),
    "phone": (390, "zh-CN", "dark"),
}
Make = Callable[..., Any]


def _played(run: Run, step: int, rewards: Sequence[float | None], group: int = 0, **over: Any) -> list[Rollout]:
    """A group of rollouts that ended with these rewards, each with a question and an answer."""
    words = over.pop("words", "The answer is 42.")
    fields = {"attempt": 1, "step": step, "group": group, "turns": 1, "seq": 1, "started_at": timezone.now()}
    fields |= {"status": RolloutStatus.COMPLETED, "task": "What is 6 * 7?"} | over

    def outcome(reward: float | None) -> Outcome:
        return Outcome.NO_VERDICT if reward is None else Outcome.SOLVED if reward >= 1 else Outcome.FAILED

    made = Rollout.objects.bulk_create(
        Rollout(run=run, index=number, reward=reward, outcome=outcome(reward), **fields)
        for number, reward in enumerate(rewards)
    )
    asked, answered = {"role": "user", "content": fields["task"]}, {"role": "assistant", "content": words}
    Turn.objects.bulk_create(
        Turn(rollout=one, run=run, number=number, messages=[message], seq=1)
        for one in made
        for number, message in enumerate((asked, answered))
    )
    known = [reward for reward in rewards if reward is not None]
    mean = sum(known) / len(known) if known else None
    flat = len(set(known)) < 2
    RolloutGroup.objects.create(
        run=run, attempt=1, step=step, group=group, reward_mean=mean, reward_std=0.5, zero_variance=flat, seq=1
    )
    return made


def _of_one_step(ended: Ended) -> Run:
    run = ended(name="one-step", success=[0.5], reward=[0.5])
    _played(run, 1, [1.0, 0.0])
    return run


def _of_a_hundred_thousand_steps(ended: Ended) -> Run:
    run = ended(name="endless", success=[step % 97 / 97 for step in range(100_000)], reward=[0.1] * 100_000)
    _played(run, 100_000, [1.0, 0.0])
    return run


def _without_rewards(ended: Ended) -> Run:
    run = ended(name="unpaid")
    Run.objects.filter(pk=run.pk).update(step=3, total_steps=3)
    _played(run, 3, [None, None])
    return run


def _of_two_hundred_components(ended: Ended) -> Run:
    names = [f"component_number_{number}" for number in range(200)]
    parts = [{"name": name, "function": "final_answer", "weight": 0.01} for name in names]
    config = JobConfig.model_validate({"rewards": {"components": parts}})
    run = ended(name="many-parts", success=[0.2, 0.4], reward=[0.2, 0.4], config=config)
    for name in names:
        points(run, f"rewards/{name}/mean", [0.1, 0.2])
    _played(run, 2, [1.0, 0.0], parts=dict.fromkeys(names, 0.5))
    return run


def _of_long_names_and_every_script(ended: Ended) -> Run:
    run = ended(name=LONG, success=[0.1, 0.2], reward=[0.1, 0.2])
    _played(run, 1, [1.0, 0.0], words=RIGHT_TO_LEFT, task=RIGHT_TO_LEFT)
    _played(run, 2, [0.0, 0.0], words=CHINESE, task=CHINESE, expected="四" * 400)
    _played(run, 2, [0.0], group=1, words="w" * 4000, task="t" * 900)
    return run


def _of_ten_thousand_tasks(ended: Ended, make_dataset: Make) -> Run:
    row = {"messages": [{"role": "user", "content": "What is 6 * 7?"}], "answer": "42"}
    data = make_dataset([row] * 10_000)
    config = JobConfig.model_validate({"data": {"train": data.reference}})
    run = ended(name="ten-thousand-tasks", success=[0.5] * 157, reward=[0.5] * 157, config=config)
    fields = {"attempt": 1, "turns": 1, "seq": 1, "status": RolloutStatus.COMPLETED, "started_at": timezone.now()}
    fields |= {"reward": 0.0, "outcome": Outcome.FAILED, "index": 0}
    Rollout.objects.bulk_create(
        Rollout(run=run, step=1 + number // 64, group=number % 64, row=number, **fields) for number in range(10_000)
    )
    return run


def _of_groups_of_64(ended: Ended) -> Run:
    run = ended(name="wide-groups", success=[0.5, 0.5], reward=[0.5, 0.5])
    for step in (1, 2):
        _played(run, step, [float(number % 3 == 0) for number in range(64)])
    return run


def _that_still_trains(ended: Ended) -> Run:
    run = ended(name="at-work", success=[0.1, 0.2], reward=[0.1, 0.2], state=RunState.RUNNING)
    Run.objects.filter(pk=run.pk).update(total_steps=50)
    _played(run, 3, [None] * 4, status=RolloutStatus.RUNNING)
    return run


@pytest.fixture
def odd(ended: Ended, make_dataset: Make, project: Project, alice: User) -> list[Run]:
    """Runs of all these kinds, and an import that was interrupted."""
    files = [{"name": f"{LONG}.jsonl", "bytes": 1 << 40}]
    RunImport.objects.create(project=project, name=LONG, state=ImportState.READING, files=files, created_by=alice)
    return [
        _of_one_step(ended),
        _of_a_hundred_thousand_steps(ended),
        _without_rewards(ended),
        _of_two_hundred_components(ended),
        _of_long_names_and_every_script(ended),
        _of_ten_thousand_tasks(ended, make_dataset),
        _of_groups_of_64(ended),
        _that_still_trains(ended),
    ]


def _pages_of(run: Run, other: Run) -> dict[str, str]:
    home = reverse("run-detail", args=[run.project.slug, run.pk])
    first = Rollout.objects.filter(run=run).order_by("-step", "group", "index").first()
    assert first is not None
    slug = run.project.slug
    return {
        "run": home,
        "rollouts": f"{home}rollouts/",
        "tasks": f"{home}tasks/",
        "rollout": reverse("rollout-detail", args=[slug, first.pk]),
        "new": f"{reverse('run-new', args=[slug])}?clone={run.pk}",
        "lab": f"{reverse('lab', args=[slug])}?run={run.pk}",
        "compare": f"{reverse('compare', args=[slug])}?c={run.pk}&c={other.pk}",
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_pages_of_odd_runs_hold(
    form: str, served: str, odd: list[Run], project: Project, alice: User, chromium: Any
) -> None:
    width, locale, scheme = FORMS[form]
    context = chromium.new_context(
        base_url=served, locale=locale, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    client = Client()
    client.force_login(alice)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": served}])
    walk = Walk(context, project)
    places = {
        "overview": walk.base,
        "runs": f"{walk.base}runs/",
        "import": reverse("run-import-detail", args=[project.slug, RunImport.objects.get().pk]),
    }
    for run in odd:
        other = odd[0] if run is not odd[0] else odd[1]
        places |= {f"{run.name[:20]}-{page}": place for page, place in _pages_of(run, other).items()}
    for page, place in places.items():
        walk.look(place)
        if folder := os.environ.get("TILTYARD_PICTURES"):
            walk.page.wait_for_timeout(700)
            walk.page.screenshot(path=f"{folder}/odd-{page}-{form}.png")
    context.close()
    assert not walk.problems, "\n".join(walk.problems)
