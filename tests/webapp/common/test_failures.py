"""Every error code has a sentence in both languages, and pages show it with what was reported beneath."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from training.errors import Boundary, TiltyardError
from webapp.common.words import BOUNDARIES, CODES, failure, failure_strings
from webapp.engine import history  # noqa: F401 - its errors count too
from webapp.people.teams.models import User
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

ROOT = Path(__file__).resolve().parents[3]
CHINESE = {
    "environment_timeout": "等待环境应答超时",
    "trainer_died": "训练进程意外结束",
    "reward_fault": "有奖励分量无法计算",
    "storage_full": "磁盘已满",
    "dependency_failed": "以另一个训练任务的模型为起点，而后者没有成功",
}


def _subclasses(base: type[TiltyardError]) -> Iterator[type[TiltyardError]]:
    for found in base.__subclasses__():
        yield found
        yield from _subclasses(found)


def _codes_in_source() -> Iterator[str]:
    """The codes that are written down where an ``ErrorInfo`` is made."""
    for folder in ("webapp", "training"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ErrorInfo":
                    yield from (
                        word.value.value
                        for word in node.keywords
                        if word.arg == "code" and isinstance(word.value, ast.Constant)
                    )


def test_every_code_has_an_entry() -> None:
    ours = {found.code for found in _subclasses(TiltyardError) if not found.__module__.startswith("tests")}
    written = set(_codes_in_source())
    assert len(ours) > 15 and "trainer_died" in written
    assert ({TiltyardError.code, "attempt_ended"} | ours | written) - set(CODES) == set()
    assert set(BOUNDARIES) == {boundary.value for boundary in Boundary}


def test_every_entry_has_its_chinese() -> None:
    with translation.override("en"):
        english = failure_strings()
    with translation.override("zh-hans"):
        chinese = failure_strings()
    assert {key for key in english if chinese[key] == english[key]} == set()


def test_a_code_of_another_version_speaks_for_itself() -> None:
    found = failure({"code": "from_tomorrow", "boundary": "nowhere", "message": "Odd.", "hint": "Look.", "more": 1})
    assert found is not None
    assert (found.title, found.hint, found.detail, found.boundary) == ("Odd.", "Look.", "", "nowhere")
    assert failure(None) is None and failure({}) is None
    assert failure({"code": None, "message": ["x"]}) is not None


def test_nothing_is_reported_twice() -> None:
    words = CODES["worker_lost"]
    found = failure({"code": "worker_lost", "boundary": "lease", "message": "Worker w is silent.", "hint": words.hint})
    assert found is not None and found.detail == "Worker w is silent."


@pytest.mark.django_db
@pytest.mark.parametrize("code", CHINESE)
def test_chinese_pages_say_it_in_chinese(
    code: str, client_for: Callable[..., Client], make_run: Callable[..., Any], rita: User
) -> None:
    error = {"code": code, "boundary": "environment", "message": "As <reported>.", "hint": "As hinted."}
    run = make_run(state=RunState.FAILED, error=error)
    rollout = Rollout.objects.create(
        run=run, attempt=1, step=1, group=0, index=0, status="excluded", started_at=timezone.now(), seq=1, error=error
    )
    client = client_for(rita, headers={"accept-language": "zh-hans"})
    slug = run.project.slug
    for url in (
        reverse("run-detail", args=[slug, run.pk]),
        reverse("run-list", args=[slug]),
        reverse("rollout-detail", args=[slug, rollout.pk]),
    ):
        text = client.get(url).content.decode()
        assert CHINESE[code] in text and "As &lt;reported&gt;. As hinted." in text, url
