"""Each preset in its test size, from the card to a trained run: real browser, workers, keeper, servers, trainer.

Then the components that the run page shows are computed once more from what was recorded, by the same formulas.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.demos import DEMOS, FIGURES, learned
from tests.processes import running
from tests.servers import celery_processes, make_child_env
from training.data.reader import load_rows
from training.presets import presets
from training.rewards.scoring import score_episode
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.runs.config import all_components, component_titles, config_of, of_step
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.selectors import episodes_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.django_db(transaction=True),
]
MAIN = [item.id for item in presets().values() if item.role == "main" and item.test is not None]
CREATE_LIMIT_MS, LAUNCH_LIMIT_MS, TRAIN_LIMIT_MS = 120_000, 90_000, 1_200_000
TOLERANCE = 1e-9


@pytest.fixture
def house(tmp_path: Path) -> Iterator[None]:
    """Two workers, the clockwork and the keeper of environments, on this test's database."""
    keeper = [sys.executable, "manage.py", "keep_environments"]
    with celery_processes(tmp_path), running(keeper, tmp_path / "keeper.log", make_child_env()):
        yield
        Environment.objects.update(wanted=0)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and Environment.objects.filter(replicas__isnull=False).exists():
            time.sleep(0.2)


def create(page: Page, project: Project, preset: str) -> None:
    """Press the one button, and wait until everything is there and the form is filled."""
    page.goto(f"/p/{project.slug}/runs/new/?preset={preset}&size=test")
    page.click("#create-needs")
    page.wait_for_selector("#needs[data-ready=true]", timeout=CREATE_LIMIT_MS)


def launch(page: Page) -> Run:
    """Launch the form unchanged; the preflight must report nothing."""
    page.click("#launch")
    page.wait_for_selector("#run-state, #preflight [data-ok=false], .errorlist", timeout=LAUNCH_LIMIT_MS)
    assert re.search(r"/runs/[0-9a-f-]{36}/", page.url), page.inner_text("#preflight")
    return Run.objects.get(pk=page.url.rstrip("/").rpartition("/")[2])


def computed_again(run: Run) -> list[tuple[Rollout, dict[str, float], float]]:
    """Every scored rollout of a run with its parts and reward as the formulas of its stage give them now."""
    config = config_of(run)
    assert config is not None
    dataset = Dataset.objects.get(name=run.config["data"]["train"].removeprefix("dataset:").partition("@")[0])
    rows = {place: row.task() for place, row in enumerate(load_rows(dataset.rows_path))}
    scored = Rollout.objects.filter(run=run).exclude(status=RolloutStatus.EXCLUDED)
    rollouts = list(scored.order_by("step", "group", "index"))
    found = []
    for rollout, episode in episodes_of(rollouts, rows):
        components = of_step(run, config, rollout.step).rewards.components
        score = score_episode(episode, components, step=rollout.step)
        found.append((rollout, score.parts, score.total))
    assert len(found) == len(rollouts) > 0
    return found


@pytest.mark.parametrize("preset", MAIN)
def test_a_preset_trains_from_its_card(
    preset: str, project: Project, bob: User, page_for: Callable[..., Page], house: None
) -> None:
    page = page_for(bob)
    page.set_default_timeout(30_000)
    began = time.monotonic()
    create(page, project, preset)
    created = time.monotonic()
    run = launch(page)
    page.wait_for_selector("#run-state:is([data-state=succeeded], [data-state=failed])", timeout=TRAIN_LIMIT_MS)
    run.refresh_from_db()
    assert (run.state, run.error) == ("succeeded", None)
    trained = time.monotonic()
    figures = {"preset": preset, "create_s": round(created - began), "train_s": round(trained - created)}
    if run.kind == "grpo":
        figures |= check_rewards(page, run)
    print(json.dumps(figures))


def test_one_click_and_a_closed_tab_end_in_a_trained_run(
    project: Project, bob: User, page_for: Callable[..., Page], house: None
) -> None:
    page = page_for(bob)
    page.set_default_timeout(30_000)
    page.goto(f"/p/{project.slug}/runs/new/?preset=reasoning-grpo&size=test")
    page.click("#create-and-launch")
    page.wait_for_selector("#needs [role=status]")
    page.goto("about:blank")
    deadline = time.monotonic() + CREATE_LIMIT_MS / 1000
    while time.monotonic() < deadline and not Run.objects.filter(kind="grpo").exists():
        time.sleep(0.5)
    run = Run.objects.get(kind="grpo")
    assert run.created_by == bob and run.after is not None and run.after.kind == "sft"
    page.goto(f"/p/{project.slug}/runs/{run.pk}/")
    page.wait_for_selector("#run-state:is([data-state=succeeded], [data-state=failed])", timeout=TRAIN_LIMIT_MS)
    run.refresh_from_db()
    assert (run.state, run.error) == ("succeeded", None)


@pytest.mark.parametrize("preset", DEMOS)
def test_a_demo_is_one_click_from_its_card(
    preset: str, project: Project, bob: User, page_for: Callable[..., Page], house: None
) -> None:
    """What a newcomer does on a machine without a GPU: a card, one button, a run that has learned. Prints the time."""
    page = page_for(bob)
    page.set_default_timeout(60_000)
    page.goto(f"/p/{project.slug}/runs/new/")
    page.click(f"#gallery a[href='?preset={preset}&size=demo']")
    assert page.locator(".preset-open .button[aria-current]").inner_text() == "Demo"
    began = time.monotonic()
    page.click("#create-and-launch")
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"), timeout=CREATE_LIMIT_MS)
    page.wait_for_selector("#run-state:is([data-state=succeeded], [data-state=failed])", timeout=TRAIN_LIMIT_MS)
    seconds = round(time.monotonic() - began)
    run = Run.objects.get(kind__in=("grpo", "rloo"))
    assert (run.state, run.error, run.name) == ("succeeded", None, f"{preset}-demo-1")
    names = set(MetricPoint.objects.filter(run=run).values_list("name", flat=True))
    figure = next(name for name in FIGURES if name in names)
    values = list(MetricPoint.objects.filter(run=run, name=figure).order_by("step").values_list("value", flat=True))
    found = learned(values)
    print(json.dumps({"preset": preset, "click_to_end_s": seconds, "figure": figure, **found}))
    assert found["ratio"] is not None and found["ratio"] >= 1.3


def check_rewards(page: Page, run: Run) -> dict[str, Any]:
    """What was stored and shown is what the formulas say of the recorded rollouts."""
    groups: dict[tuple[int, int], set[float]] = {}
    sums: dict[tuple[int, str], list[float]] = {}
    for rollout, parts, total in computed_again(run):
        assert rollout.parts == pytest.approx(parts, abs=TOLERANCE)
        assert rollout.reward == pytest.approx(total, abs=TOLERANCE)
        groups.setdefault((rollout.step, rollout.group), set()).add(round(total, 9))
        for name, value in parts.items():
            sums.setdefault((rollout.step, name), []).append(value)
    shown = {(point.step, point.name): point.value for point in MetricPoint.objects.filter(run=run)}
    for (step, name), values in sums.items():
        assert shown[step, f"rewards/{name}/mean"] == pytest.approx(sum(values) / len(values), abs=1e-5)  # float32
    assert any(len(rewards) > 1 for rewards in groups.values()), "every group has equal rewards: nothing to learn from"
    page.click("[data-tab=rollouts]")
    config = config_of(run)
    assert config is not None
    titles = component_titles(all_components(config))
    for name in {name for _step, name in sums}:
        page.locator("main").get_by_text(titles[name]).first.wait_for(state="attached")
    rewards = [value for (_step, name), value in sorted(shown.items()) if name == "reward"]
    excluded = Rollout.objects.filter(run=run, status=RolloutStatus.EXCLUDED).count()
    return {"first": round(rewards[0], 3), "last": round(rewards[-1], 3), "steps": len(rewards), "excluded": excluded}
