"""A reward in Python, from the administrator's switch to the figures of a run, on real parts."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from tests.servers import celery_processes
from training.config import JobConfig
from training.rewards.custom import code_hash, plain_episode
from webapp.common.storage import attempt_dir
from webapp.engine.services import run_create
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.rewards.custom import rows_at
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import episodes_of
from webapp.runs.states import TERMINAL, RunState

PASSWORD = "correct horse battery staple"
PASTED = json.dumps([{"role": "user", "content": "2+3?"}, {"role": "assistant", "content": "5"}])
SHOTS = os.environ.get("TILTYARD_TEST_SHOTS", "")


def reward(episode: dict[str, Any]) -> float:
    after = episode["messages"][episode["prompt_length"] :]
    length = sum(len(message["content"]) for message in after if message["role"] == "assistant")
    return length / 1000 + 0.1 * len(episode["calls"]) + len(episode["row"]) - 0.01 * (episode["tokens"] or 0)


CODE = "from typing import Any\n\n\n" + inspect.getsource(reward)


def shot(page: Any, name: str) -> None:
    """A picture for a person, where one was asked for."""
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


@pytest.fixture
def admin(db: None) -> User:
    return User.objects.create_superuser("ada", "ada@example.org", PASSWORD)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[None]:
    """Workers where the operator allows custom rewards."""
    with celery_processes(tmp_path, TILTYARD_CUSTOM_REWARDS="true"):
        yield


def switch_on(page: Any) -> None:
    """As an administrator: the switch, the password, the switch again."""
    page.goto("/site/")
    page.get_by_role("button", name="Switch on").click()
    page.get_by_label("Password").fill(PASSWORD)
    shot(page, "confirm")
    page.get_by_role("button", name="Confirm").click()
    page.get_by_role("button", name="Switch on").click()
    page.get_by_role("button", name="Switch off").wait_for()


def write(page: Any, project: Project) -> RewardSpec:
    """As an editor: code with a mistake, the mistake's line, the fixed code, its test, the spec."""
    page.goto(f"/p/{project.slug}/rewards/custom/")
    page.locator("#id_code").fill("def reward(episode):\n    return 1 / 0")
    page.get_by_label("Test it on").select_option("pasted")
    page.get_by_text("Pasted episodes", exact=True).click()
    page.locator("#id_pasted").fill(PASTED)
    page.get_by_role("button", name="Test").click()
    page.get_by_text("ZeroDivisionError").wait_for()
    shot(page, "failed")
    page.locator("[data-line='2']").click()
    selected = "(at => at.value.slice(at.selectionStart, at.selectionEnd))(document.activeElement)"
    assert page.evaluate(selected) == "    return 1 / 0"
    page.keyboard.press("Tab")
    assert page.locator("#id_code").input_value() == "def reward(episode):\n    "
    page.locator("#id_code").fill(CODE)
    assert page.locator("[data-lines]").inner_text().split("\n")[-1] == str(CODE.count("\n") + 1)
    page.get_by_role("button", name="Test").click()
    page.get_by_text("and can be saved").wait_for()
    page.locator("#id_name").fill("chars")
    page.locator("#id_spec_name").fill("by hand")
    shot(page, "tested")
    page.get_by_role("button", name="Save in the reward spec").click()
    page.get_by_text(code_hash(CODE)[:12]).first.wait_for()
    return RewardSpec.objects.get(project=project)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_a_reward_written_in_the_browser_trains(
    admin: User,
    bob: User,
    project: Project,
    page_for: Callable[..., Any],
    tools_server: str,
    workers: None,
    make_dataset: Any,
    make_environment: Any,
    settings: Any,
    tmp_path: Path,
) -> None:
    settings.CUSTOM_REWARDS = True
    switch_on(page_for(admin, old=True))
    page = page_for(bob)
    spec = write(page, project)
    argv = [sys.executable, "-m", "envs.tools", "tasks", "--count", "16", "--difficulty", "starter"]
    subprocess.run([*argv, "--output", str(tmp_path / "tasks")], cwd=ROOT, check=True, timeout=60)
    rows = [json.loads(line) for line in (tmp_path / "tasks").read_text().splitlines()]
    environment = make_environment(url=tools_server)
    config = JobConfig.model_validate(
        {
            "model": {"source": "starter"},
            "data": {"train": make_dataset(lines=rows).reference},
            "environment": {"name": f"environment:{environment.name}"},
            "rewards": {"spec": spec.reference},
            "rollout": {
                "prompts_per_step": 2,
                "num_generations": 4,
                "max_turn_tokens": 24,
                "max_completion_tokens": 64,
            },
            "run": {"max_steps": 3, "threads": 1},
        }
    )
    run = run_create(project=project, user=bob, name="by hand", config=config)
    deadline = time.monotonic() + 300
    while run.state not in TERMINAL and time.monotonic() < deadline:
        time.sleep(0.5)
        run = Run.objects.get(pk=run.pk)
    output = attempt_dir(run.pk, 1) / "output.log"
    assert run.state == RunState.SUCCEEDED, (run.error, output.read_text()[-2000:] if output.exists() else "")
    assert run.resolved["rewards"]["components"][0]["params"]["sha256"] == code_hash(CODE)
    rollouts = list(Rollout.objects.filter(run=run).order_by("step", "group", "index"))
    found = list(episodes_of(rollouts, rows_at(run, rollouts)))
    assert len(found) == len(rollouts) == 24 and {item.status for item in rollouts} <= {"completed", "truncated"}
    for rollout, episode in found:
        assert rollout.parts == {"chars": pytest.approx(reward(plain_episode(episode)), abs=1e-12)}
        assert rollout.reward == pytest.approx(rollout.parts["chars"], abs=1e-12)
    assert len({rollout.reward for rollout in rollouts}) > 5
    page.goto(f"/p/{project.slug}/runs/{run.pk}/?tab=config")
    page.get_by_text(code_hash(CODE)).first.wait_for()
    shot(page, "run")
    actions = (
        AuditEntry.objects.filter(action__regex="^(code|custom)_").order_by("id").values_list("action", "username")
    )
    assert list(actions) == [("custom_on", "ada"), ("code_tested", "bob"), ("code_saved", "bob")]
    if SHOTS:
        pictures(page_for, admin, bob, project, spec)


def pictures(page_for: Callable[..., Any], admin: User, bob: User, project: Project, spec: RewardSpec) -> None:
    """Every new page in dark, light and narrow."""
    base = f"/p/{project.slug}/rewards"
    places = {
        "editor": f"{base}/custom/?spec={spec.pk}&part=chars",
        "spec": f"{base}/{spec.pk}/",
        "edit": f"{base}/{spec.pk}/edit/",
    }
    for look, options in {
        "light": {},
        "dark": {"color_scheme": "dark"},
        "narrow": {"viewport": {"width": 390, "height": 800}},
    }.items():
        page = page_for(bob, **options)
        for name, place in places.items():
            page.goto(place)
            shot(page, f"{name}-{look}")
        page = page_for(admin, **options)
        page.goto("/site/")
        shot(page, f"site-{look}")
