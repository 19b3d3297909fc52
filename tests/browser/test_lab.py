"""The reward lab in real Chromium: a weight is moved and the figures become those that are worked out here by hand."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from tests.working import done
from training.config import JobConfig, RewardComponent
from webapp.people.teams.models import Project, User
from webapp.rewards.lab.sets import rollout_set_create
from webapp.rewards.models import RewardSpec, RolloutSet
from webapp.rewards.services import reward_spec_save
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]
LIMIT_MS = 30_000
SHOTS = os.environ.get("TILTYARD_SHOTS", "")
SPEC = [{"name": "task_success", "weight": 1.0}, {"name": "final_answer", "weight": 0.5}]
SOLVED = [{0}, {0, 1, 2, 3}, {2}, set()]
"""Which of each group's four rollouts solved their task: 6 of 16; the groups 1 and 3 have zero variance."""


@pytest.fixture
def recorded(make_run: Any, make_dataset: Any) -> Run:
    """One step of four groups of four. All of them end with the same words, so the shaping component is constant."""
    rows = [{"messages": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
    data = make_dataset(lines=rows)
    config = JobConfig.model_validate({"data": {"train": data.reference}, "rewards": {"components": SPEC}})
    run: Run = make_run(config=config, resolved=config.model_dump(mode="json"))
    for group, solved in enumerate(SOLVED):
        for index in range(4):
            right = float(index in solved)
            rollout = Rollout.objects.create(
                id=uuid.uuid5(run.pk, f"{group}/{index}"),
                run=run,
                attempt=1,
                step=1,
                group=group,
                index=index,
                row=group,
                task=f"What is {group} + 1?",
                status="completed",
                reward=right + 0.5,
                env_reward=right,
                parts={"task_success": right, "final_answer": 1.0},
                tokens=10,
                started_at=timezone.now(),
                seq=1,
            )
            answer = [{"role": "assistant", "content": f"The <b>answer</b> is {group + 1}."}]
            for number, messages in enumerate([rows[group]["messages"], answer]):
                Turn.objects.create(rollout=rollout, run=run, number=number, messages=messages, seq=1)
    return run


@pytest.fixture
def rollout_set(recorded: Run, bob: User) -> RolloutSet:
    """The run's rollouts as the worker freezes them."""
    made = rollout_set_create(project=recorded.project, user=bob, name="first step", kind="run", run=recorded)
    return done(made)


class Desk:
    """One person at the lab."""

    def __init__(self, page: Any, project: Project) -> None:
        self.page, self.project = page, project
        self.problems: list[str] = []
        page.on("console", lambda line: self.problems.append(line.text) if line.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.set_default_timeout(LIMIT_MS)

    def tile(self, name: str) -> str:
        """What a tile says, its small line left out."""
        return " ".join(self.page.inner_text(f'[data-tile="{name}"] .lab-tile-row').split())

    def weigh(self, component: str, weight: str, reward: str) -> None:
        """Type a weight and wait for the mean reward that it leads to."""
        self.page.fill(f"#component-{component} [data-weight]", weight)
        self.page.locator(f'[data-tile="reward"] .tile-value:text-is("{reward}")').wait_for()

    def card(self, group: int, index: int) -> list[str]:
        """Reward and advantage on the card of one rollout."""
        card = self.page.locator(".group").nth(group).locator(".rollout").nth(index)
        return [card.locator(part).inner_text() for part in (".rollout-reward", ".rollout-advantage")]

    def moves(self, group: int) -> list[str]:
        """By how many places each card of a group moved."""
        return list(self.page.locator(".group").nth(group).locator(".rollout-note").all_inner_texts())

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)


def test_a_weight_is_moved_looked_at_saved_and_launched(
    project: Project, bob: User, page_for: Callable[..., Any], recorded: Run, rollout_set: RolloutSet
) -> None:
    first = reward_spec_save(
        project=project, user=bob, name="mine", components=[RewardComponent.model_validate(part) for part in SPEC]
    )
    desk = Desk(page_for(bob), project)
    page = desk.page
    page.goto(f"/p/{project.slug}/runs/{recorded.pk}/")
    page.goto(f"/p/{project.slug}/rewards/lab/?run={recorded.pk}&spec={first.pk}")
    page.locator("#lab-result:visible").wait_for()
    assert page.url.split("?")[0].endswith(f"/lab/{rollout_set.pk}/")
    # 6 of 16 solved: 6/16 + 0.5 = 0.875; two of the four groups hold equal rewards.
    assert [desk.tile(name) for name in ("reward", "zero", "agreement")] == ["0.88", "50%", "–"]
    # Group 0: 1.5, 0.5, 0.5, 0.5 – mean 0.75, deviation 0.5, so 0.75 / 0.5001 and −0.25 / 0.5001.
    assert [desk.card(0, 0), desk.card(0, 1)] == [["1.50", "+1.50"], ["0.50", "−0.50"]]
    alarm = page.locator('[data-code="constant_component"]')
    assert "note" in alarm.inner_text() and "final_answer" in alarm.inner_text()
    assert page.locator("#component-final_answer [data-alarm]").inner_text() == "note"

    assert page.locator("#lab-groups .rollout[tabindex='0']").count() == 1, "one tab stop for all cards"
    assert page.locator("#lab-groups .rollout:not([tabindex])").count() == 0
    page.click("#lab-how summary")
    page.select_option("#lab-aggregation", "normalize_then_sum")
    page.locator("#lab-scale-idle:visible").wait_for()  # the choice below it had no effect, and could be made
    assert page.is_disabled("#lab-scale")
    page.select_option("#lab-aggregation", "sum_then_normalize")
    assert page.is_enabled("#lab-scale") and not page.is_visible("#lab-scale-idle")

    desk.weigh("task_success", "-0.4", "0.35")  # the one that solved it was first, and is fourth now
    assert desk.moves(0) == ["↓3", "↑1", "↑1", "↑1"] and desk.moves(2) == ["↑1", "↑1", "↓3", "↑1"]
    desk.weigh("task_success", "0.4", "0.65")  # 0.4 × 6/16 + 0.5
    assert desk.tile("reward") == "0.88 → 0.65" and desk.tile("zero") == "50%" and desk.tile("agreement") == "1.00"
    assert [desk.card(0, 0), desk.card(0, 1)] == [["0.90", "+1.50"], ["0.50", "−0.50"]]
    assert re.fullmatch(r"Scored 16 rollouts in [\d.]+ m?s", page.inner_text("#lab-status"))
    assert page.inner_text("#lab-changed") == "1 changed" and "mine@1 as saved" in page.inner_text("#chart-against")

    page.select_option("#lab-only", "zero_variance")
    page.locator("#lab-shown:text-is('1–2 of 2 groups')").wait_for()
    page.reload()  # keeps the weight and the view
    page.locator('[data-tile="reward"] .tile-value:text-is("0.65")').wait_for()
    assert page.locator(".group h2").all_inner_texts() == ["Step 1 · group 1", "Step 1 · group 3"]
    page.select_option("#lab-only", "all")
    page.locator("#lab-shown:text-is('1–4 of 4 groups')").wait_for()

    page.fill("#component-task_success [data-weight]", "1000")
    page.locator("#component-task_success [data-problem]:visible").wait_for()
    assert "at most 100" in page.inner_text("#component-task_success [data-problem]")
    # It said "see the detail" with none, "as saved" and "Weights sum to 0".
    assert page.inner_text("#lab-error-title") == "Fix the marked fields; the figures wait until then."
    page.fill("#component-task_success [data-weight]", "")
    page.locator("#lab-changed:text-is('1 to fix')").wait_for()
    assert page.inner_text("#lab-sum") == "Weights sum to –" and page.is_visible("#lab-reset")
    desk.problems = [text for text in desk.problems if "422" not in text]  # the browser's own line about the answer
    page.fill("#component-task_success [data-weight]", "0.4")
    page.locator("#lab-error").wait_for(state="hidden")

    alarm.locator("[data-evidence]").first.click()
    page.locator("#transcript .message").nth(1).wait_for()
    assert "The <b>answer</b> is" in page.inner_text("#transcript")  # text, not markup
    assert page.inner_text('[data-part="task_success"] b') in ("0.00", "1.00")
    page.click('[data-part="final_answer"]')
    assert desk.query()["component"] == ["final_answer"] and "rollout" in desk.query()
    _shoot(page, "lab")
    page.click("#reader-close")

    page.click("#lab-save")
    page.fill("#save-name", "?")  # refused: the dialog says why, and its button can be pressed again
    page.click("#save-button")
    page.locator("#save-problem:visible").wait_for()
    assert page.inner_text("#save-button") == "Save"
    desk.problems = [text for text in desk.problems if "422" not in text]
    page.fill("#save-name", "mine")
    page.click("#save-button")
    page.wait_for_url(lambda url: first.pk.hex not in url.replace("-", ""))
    page.locator('[data-tile="reward"] .tile-value:text-is("0.65")').wait_for()
    second = RewardSpec.objects.get(version=2)
    assert [(part["name"], part["weight"]) for part in second.components] == [
        ("task_success", 0.4),
        ("final_answer", 0.5),
    ]
    assert page.inner_text("#lab-changed") == "as saved" and desk.query()["spec"] == [str(second.pk)]
    page.click("#lab-launch")
    page.wait_for_url("**/runs/new/**")
    assert desk.query()["reward"] == ["reward:mine@2"] and desk.query()["from"] == [str(recorded.pk)]
    assert desk.problems == []


@pytest.mark.slow
def test_a_viewer_may_weigh_but_not_save(
    project: Project, rita: User, page_for: Callable[..., Any], rollout_set: RolloutSet
) -> None:
    desk = Desk(page_for(rita, viewport={"width": 390, "height": 800}), project)
    page = desk.page
    page.goto(f"/p/{project.slug}/rewards/lab/{rollout_set.pk}/?spec=run")
    verdict = page.locator("#lab-verdict")
    verdict.get_by_text("groups with both outcomes").wait_for()
    assert verdict.get_attribute("data-kind") == "info", "two groups are too few"
    page.locator("#lab-result:visible").wait_for()
    assert not page.locator("#lab-save, #lab-launch").count()
    page.select_option("#lab-add", "coherence")  # a component that was not recorded is computed
    page.locator("#component-coherence [data-figures]:has-text('⌀')").wait_for()
    assert page.evaluate("document.activeElement.closest('[data-component]').dataset.component") == "coherence"
    page.keyboard.press("ArrowUp")
    assert page.input_value("#component-coherence [data-weight]") == "0.11"
    page.click("#component-coherence [data-remove]")
    page.locator("#lab-changed:text-is('as saved')").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390 and desk.problems == []


def _shoot(page: Any, name: str) -> None:
    """Pictures in light, dark and on a phone, if TILTYARD_SHOTS names a folder."""
    for theme, width in (("light", 1440), ("dark", 1440), ("light", 390)) if SHOTS else ():
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(400)
        page.screenshot(path=str(Path(SHOTS) / f"{name}-{theme}-{width}.png"))


def test_credit_to_turns_is_tried_on_a_set(
    project: Project, bob: User, page_for: Callable[..., Any], recorded: Run
) -> None:
    """Recorded without rewards by turn, it says so; with them, a row for each turn."""
    desk = Desk(page_for(bob), project)
    page = desk.page
    for known in (False, True):
        if known:
            for rollout in recorded.rollouts.all():
                rollout.turn_rewards = [None, float(rollout.index == 1), rollout.env_reward]
                rollout.save(update_fields=["turn_rewards"])
        name = "by turns" if known else "older"
        made = done(rollout_set_create(project=project, user=bob, name=name, kind="run", run=recorded))
        page.goto(f"/p/{project.slug}/rewards/lab/{made.pk}/")
        page.locator("#lab-result:visible").wait_for()
        if not known:
            assert "recorded without" in page.inner_text("#lab-turns-why") and not page.is_visible("#lab-turns")
    rows = [row.inner_text().split() for row in page.locator("#lab-turns-rows tr").all()]
    # One of each group was paid 1 at its first turn, which half of them lost again: 0.25 and a deviation of 0.5.
    assert rows[0][:4] == ["1", "16", "0.250", "0.500"] and rows[1][:4] == ["2", "16", "–", "–"]
    assert page.inner_text("#lab-turns-known") == "Rewards by turn recorded of 16 of 16 rollouts"
    assert "reached it" in page.inner_text("#lab-turns-note") and not page.is_visible("#lab-turns-why")
    page.locator("#lab-turns-card").scroll_into_view_if_needed()
    _shoot(page, "turns")
    page.set_viewport_size({"width": 390, "height": 900})
    page.locator("#lab-turns-card").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390 and desk.problems == []
    if SHOTS:
        page.locator("#lab-turns-card").screenshot(path=str(Path(SHOTS) / "turns-card-390.png"))


def test_the_form_of_a_launch_offers_no_choice_without_effect(
    project: Project, bob: User, page_for: Callable[..., Any]
) -> None:
    """The scale of advantages could be chosen where each component is divided by its own spread."""
    desk = Desk(page_for(bob), project)
    page = desk.page
    page.goto(f"/p/{project.slug}/runs/new/")
    scale, sent = "select[name='grpo.scale_rewards']", "#run-form input[name='grpo.scale_rewards']"
    page.select_option(scale, "batch", force=True)
    page.select_option("[name='rewards.aggregation']", "normalize_then_sum", force=True)
    assert page.is_disabled(scale) and page.locator(sent).input_value() == "batch", "its value still travels"
    assert "No effect here" in page.locator(".field", has=page.locator(scale)).text_content()
    page.select_option("[name='rewards.aggregation']", "sum_then_normalize", force=True)
    assert page.is_enabled(scale) and page.locator(sent).count() == 0
    assert desk.problems == []
