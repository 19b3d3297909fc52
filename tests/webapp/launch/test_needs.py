"""What presets need is found, made once, and shown; viewers see why they cannot make it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import at_once
from training.presets import presets
from webapp.common.workers.models import Worker
from webapp.datasets.models import Dataset
from webapp.environments.models import DatasetOrder, Environment, OrderState, ReplicaState
from webapp.launch import needs as needs_module
from webapp.launch.background import preparation_lines
from webapp.launch.models import Preparation
from webapp.launch.needs import FAILED, FOUND, MAKING, MISSING, filled, situation
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)
TOOLBENCH, REASONING = presets()["toolbench"], presets()["reasoning-grpo"]


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets are checked here, without a worker; orders wait until a test has them written."""
    at_once(monkeypatch, Dataset)
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: True)


def states(project: Project, preset: Any) -> list[str]:
    return [need.state for need in situation(project, preset, "test").needs]


def make(project: Project, user: User, preset: Any, *, again: bool = False) -> None:
    needs_module.needs_make(project=project, user=user, preset=preset, size="test", again=again)


def counts() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (Environment, DatasetOrder, RewardSpec, Dataset, Run))


def test_everything_is_made_once_and_step_by_step(project: Project, bob: User, make_dataset: Any) -> None:
    assert states(project, TOOLBENCH) == [MISSING] * 4
    make(project, bob, TOOLBENCH)
    assert states(project, TOOLBENCH) == [MAKING, MAKING, FOUND, MAKING]
    environment = Environment.objects.get()
    assert (environment.program, environment.arguments, environment.wanted) == ("toolbench", {}, 1)
    asked = {order.command: order.arguments for order in DatasetOrder.objects.all()}
    assert asked == {"tasks": {"count": 48}, "demonstrations": {"count": 400}}
    before = counts()
    make(project, bob, TOOLBENCH)
    assert counts() == before == (1, 2, 1, 0, 0)
    environment.replicas.create(number=1, url="http://127.0.0.1:1", state=ReplicaState.HEALTHY)
    for order in DatasetOrder.objects.all():
        order.dataset, order.state = make_dataset(name=order.name), OrderState.DONE
        order.save()
    assert states(project, TOOLBENCH) == [FOUND, FOUND, FOUND, MISSING]
    make(project, bob, TOOLBENCH)
    warm_up = Run.objects.get()
    assert (warm_up.name, warm_up.kind, warm_up.state) == ("toolbench-warm-up-1", "sft", "queued")
    now = situation(project, TOOLBENCH, "test")
    config = filled(TOOLBENCH, "test", now)
    assert now.settled and config.model.source == "run:toolbench-warm-up-1"
    assert config.environment.name == environment.reference and config.rewards.spec == "reward:toolbench@1"
    assert config.data.train == "dataset:toolbench-test@1"
    make(project, bob, TOOLBENCH, again=True)
    assert counts() == (1, 2, 1, 2, 1)


def test_a_failed_order_is_reported_and_tried_again_when_asked(project: Project, bob: User) -> None:
    make(project, bob, TOOLBENCH)
    error = {"message": "The rows became too many.", "hint": "Ask for fewer."}
    DatasetOrder.objects.filter(command="tasks").update(state=OrderState.FAILED, error=error)
    need = situation(project, TOOLBENCH, "test").needs[1]
    assert (need.state, need.note) == (FAILED, "The rows became too many. Ask for fewer.")
    make(project, bob, TOOLBENCH)
    assert DatasetOrder.objects.count() == 2
    make(project, bob, TOOLBENCH, again=True)
    assert DatasetOrder.objects.count() == 3 and states(project, TOOLBENCH)[1] == MAKING


def test_servers_with_other_options_are_not_taken(project: Project, bob: User) -> None:
    make(project, bob, TOOLBENCH)
    assert situation(project, TOOLBENCH, "full").needs[0].state == MISSING
    needs_module.needs_make(project=project, user=bob, preset=TOOLBENCH, size="full")
    assert [item.name for item in Environment.objects.order_by("created_at")] == ["toolbench", "toolbench-2"]
    assert Environment.objects.get(name="toolbench-2").arguments == {"speech": "text"}


def test_a_stage_starts_from_the_one_before_which_may_still_train(
    project: Project, make_run: Callable[..., Run]
) -> None:
    def start() -> tuple[str, str]:
        need = situation(project, presets()["bfcl-stage-2"], "test").needs[-1]
        return need.path, need.reference

    assert start()[0] != "model.source" or not start()[1].startswith("run:bfcl-stage-1")
    for number, state in enumerate(("running", "failed", "cancelled"), 1):
        make_run(name=f"bfcl-stage-1-test-{number}", state=state)
    assert start() == ("model.source", "run:bfcl-stage-1-test-1")
    make_run(name="bfcl-stage-1-test-4", state="queued")
    assert start() == ("model.source", "run:bfcl-stage-1-test-4")
    make_run(name="bfcl-stage-1-test-5", state="succeeded")  # its model is gone
    assert start() == ("model.source", "run:bfcl-stage-1-test-4")


def test_where_no_warm_up_is_made_the_stage_before_is_waited_for(
    project: Project, bob: User, make_run: Callable[..., Run]
) -> None:
    stage = presets()["bfcl-stage-2"]

    def found() -> dict[str, str]:
        return {need.path: need.reference for need in situation(project, stage, "full").needs}

    needs_module.needs_make(project=project, user=bob, preset=stage, size="full")
    assert not Run.objects.exists() and "model.source" not in found()
    make_run(name="bfcl-stage-1-1", state="running")
    assert found()["model.source"] == "run:bfcl-stage-1-1"


def test_word_problems_need_no_environment(project: Project, bob: User) -> None:
    make(project, bob, REASONING)  # the check is done at once here, so the warm-up's run follows in the same call
    make(project, bob, REASONING)
    now = situation(project, REASONING, "test")
    assert now.settled and Environment.objects.count() == 0
    rows = {item.name: item for item in Dataset.objects.all()}
    assert {name: item.rows for name, item in rows.items()} == {"reasoning-grpo-test": 256, "reasoning-sft-test": 2000}
    assert rows["reasoning-grpo-test"].lineage["options"] == {"count": 256, "seed": 0, "steps": 1, "shape": "rl"}
    config = filled(REASONING, "test", now)
    assert (config.environment.name, config.model.source) == ("none", "run:reasoning-sft-test-1")
    outcome = preflight(project, config, full=False)
    assert not outcome.problems and outcome.resolved is not None
    assert (outcome.resolved.environment.name, outcome.resolved.environment.url) == ("", "")


def test_the_card_and_its_button(
    project: Project, bob: User, rita: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    page, needs = reverse("run-new", args=[project.slug]), reverse("run-needs", args=[project.slug])
    asked = {"preset": "toolbench", "size": "test"}
    shown = client_for(rita).get(page, asked).content.decode()
    assert "Viewers cannot create this" in shown and "create-needs" not in shown
    assert client_for(rita).post(needs, asked).status_code == 403
    assert client_for(charlie).get(needs, asked).status_code == 404
    assert client_for(None).post(needs, asked).status_code == 302 and counts() == (0,) * 5
    editor = client_for(bob)
    assert 'id="create-needs"' in editor.get(page, asked).content.decode()
    plain = editor.post(needs, asked)
    assert plain["Location"] == f"{page}?preset=toolbench&size=test"
    part = editor.post(needs, asked, headers={"HX-Request": "true"}).content.decode()
    assert "It continues if you leave this page" in part and "hx-trigger" in part and Environment.objects.count() == 1
    for wrong in ({}, {"preset": "\x00"}, {"preset": "../x", "size": "huge"}):
        assert editor.post(needs, wrong).status_code == 302
    assert editor.get(page, {"preset": "toolbench", "size": "nonsense"}).context["chosen"].size == "demo"
    assert editor.delete(needs).status_code == 405
    done = editor.post(needs, {"preset": "reasoning-sft", "size": "test"}, headers={"HX-Request": "true"})
    assert done["HX-Redirect"] == f"{page}?preset=reasoning-sft&size=test"
    assert not Preparation.objects.filter(preset="reasoning-sft", state="open").exists()


def test_a_problems_answer_is_what_its_lines_say() -> None:
    from training.data.formats.gsm8k import word_problems

    rows = list(word_problems(300, seed=3, language="both", steps=3))
    assert rows == [*word_problems(200, seed=3, language="both", steps=3), *rows[200:]]
    assert rows[0] != next(word_problems(1, seed=4, language="both", steps=3))
    assert {"有" in row["question"] for row in rows} == {True, False}
    for row in rows:
        *lines, last = row["answer"].splitlines()
        value: float = int(re.findall(r"\d+", row["question"])[0])
        for line in lines:
            before, sign, by, _equals, after = line.split()
            assert int(before) == value
            value = {"+": value + int(by), "-": value - int(by), "*": value * int(by), "/": value / int(by)}[sign]
            assert value == int(after)
        assert last == f"#### {value:g}" and len(lines) == 3


def test_a_machine_without_a_gpu_gets_the_size_that_it_can_run(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    """The card opened in Full where nothing could train it."""
    now = timezone.now()
    worker = Worker.objects.create(name="train@a", queues=["train"], device="CPU", started_at=now, beat_at=now)
    client, page = client_for(bob), reverse("run-new", args=[project.slug])
    answer = client.get(page, {"preset": "webshop"})
    assert answer.context["chosen"].size == "demo"
    assert "Chosen because no worker here has a GPU." in answer.content.decode()
    without_demo = client.get(page, {"preset": "bfcl-stage-2"})
    assert without_demo.context["chosen"].size == "test"
    full = client.get(page, {"preset": "webshop", "size": "full"})
    assert full.context["chosen"].size == "full"
    assert "Chosen because" not in full.content.decode()
    Worker.objects.filter(pk=worker.pk).update(device="GPU 0")
    assert client.get(page, {"preset": "webshop"}).context["chosen"].size == "full"


def test_newcomers_are_led_to_a_demo(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    """Each demo of the gallery says how long it takes; without any worker yet it is where a preset begins."""
    client, page = client_for(bob), reverse("run-new", args=[project.slug])
    minutes = {item.id: item.demo.minutes for item in presets().values() if item.demo and item.role == "main"}
    assert {"webshop", "toolbench", "bfcl-stage-1", "reasoning-grpo", "tool-calling"} <= set(minutes)
    answer = client.get(page)
    shown = answer.content.decode()
    for name, number in minutes.items():
        link = shown.split(f'href="?preset={name}&amp;size=demo"', 1)[1].split("</a>", 1)[0]
        unit = "minute" if number == 1 else "minutes"
        assert f"Learns in about {number} {unit} on a CPU" in link
    assert 'href="?preset=bfcl-stage-2&amp;size=demo"' not in shown
    systems = {system.name: system for system in answer.context["systems"]}
    assert list(systems) == ["toolbench", "bfcl", "tools", "reasoning", "webshop"]
    assert [offer.id for offer in systems["tools"].offers] == ["tool-calling", "tools-demo-grpo"]
    assert systems["reasoning"].promise == "Learns in about 4 minutes on a CPU"  # not the 2 of its first half
    assert (systems["bfcl"].title, systems["webshop"].title) == ("BFCL multi-turn", "WebShop")
    chosen = client.get(page, {"preset": "toolbench"})
    assert chosen.context["chosen"].size == "demo" and "Chosen because" not in chosen.content.decode()
    assert client.get(page, {"preset": "bfcl-stage-2"}).context["chosen"].size == "full"
    warm_up = client.get(page, {"preset": "webshop-warm-up"}).context["systems"]
    assert "webshop-warm-up" in [offer.id for system in warm_up for offer in system.offers]


def test_a_demo_makes_its_own_world_next_to_the_test_size(project: Project, bob: User) -> None:
    webshop = presets()["webshop"]
    for size in ("test", "demo"):
        needs_module.needs_make(project=project, user=bob, preset=webshop, size=size)  # type: ignore[arg-type]
        DatasetOrder.objects.update(state=OrderState.FAILED)  # so that there is room for the next
    first, second = Environment.objects.order_by("created_at")
    assert first.arguments == {"products": 2}
    assert second.arguments["difficulty"] == "starter" and second.arguments["products"] > 2
    orders = {(order.environment_id, order.name) for order in DatasetOrder.objects.all()}
    assert (second.pk, "webshop-demo") in orders and (second.pk, "webshop-warm-up-demo") in orders
    assert (first.pk, "webshop-test") in orders


def test_an_environment_is_made_with_the_sessions_of_one_step(project: Project, bob: User) -> None:
    """It had 128, and the launch was refused because a step plays 512 at once."""
    webshop = presets()["webshop"]
    needs_module.needs_make(project=project, user=bob, preset=webshop, size="full")
    assert webshop.config_for("full").rollouts_per_step == 512
    assert Environment.objects.get().slots == 512


def test_the_notice_of_a_failed_preparation_goes_away_when_it_is_solved(project: Project, bob: User) -> None:
    failed = Preparation.objects.create(project=project, preset="webshop", size="test", state="failed", note="no room")
    assert [line.item for line in preparation_lines(project)] == [failed]
    name = f"{presets()['webshop'].run_name('test')}-1"
    run = Run.objects.create(project=project, name=name, config={}, state="queued")
    assert preparation_lines(project) == []
    run.delete()
    Preparation.objects.create(project=project, preset="webshop", size="test", state="done")
    assert preparation_lines(project) == []
