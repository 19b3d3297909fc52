"""Stages in the web: what they name is resolved for each, events say which one is trained, and a step knows its own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import translation
from tiltyard_client import show

from tests.webapp.engine.test_batch import batch_of
from training import journal
from training.config import JobConfig
from training.errors import ConfigError
from webapp.common.answers import in_shape
from webapp.datasets.selectors import runs_using as runs_of_dataset
from webapp.engine.resolve import resolve
from webapp.environments.services import require_unused
from webapp.environments.tokens import token_write, trainer_access
from webapp.launch.forms import RunForm
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.rewards.lab.sets import Rows, found_in
from webapp.rewards.selectors import runs_using as runs_of_spec
from webapp.runs import answers
from webapp.runs.config import all_components, common_components, config_at, stage_at
from webapp.runs.records.selectors import aged
from webapp.runs.reports import REPORT_KINDS, event_text
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.site.tags import event_kind

PARTS = [{"name": "task_success", "weight": 1.0}]


@pytest.fixture
def staged(make_dataset: Any, make_environment: Any, make_reward_spec: Any, settings: Any) -> dict[str, Any]:
    """Two stages with things of their own, and these things by name."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    things = {
        "data": make_dataset([{"messages": [{"role": "user", "content": f"easy {n}"}]} for n in range(3)]),
        "more": make_dataset([{"messages": [{"role": "user", "content": f"hard {n}"}]} for n in range(3)]),
        "place": make_environment(url="http://127.0.0.1:65001"),
        "other": make_environment(url="http://127.0.0.1:65002"),
        "spec": make_reward_spec(),
    }
    config = {
        "data": {"train": things["data"].reference},
        "environment": {"name": things["place"].reference},
        "rewards": {"spec": things["spec"].reference},
        "curriculum": {
            "stages": [
                {"name": "easy", "until_step": 10, "rewards": {"components": PARTS}},
                {
                    "name": "hard",
                    "data": {"train": things["more"].reference},
                    "environment": {"name": things["other"].reference, "step_timeout_s": 5},
                    "rollout": {"max_turns": 9},
                },
            ]
        },
    }
    return things | {"config": JobConfig.model_validate(config)}


def test_each_stage_is_resolved_to_what_its_trainer_takes(project: Project, staged: dict[str, Any]) -> None:
    plain = resolve(project, staged["config"]).config
    easy, hard = plain.courses
    assert (easy.data.train, hard.data.train) == (str(staged["data"].rows_path), str(staged["more"].rows_path))
    assert (easy.environment.url, hard.environment.url) == ("http://127.0.0.1:65001", "http://127.0.0.1:65002")
    assert (easy.environment.step_timeout_s, hard.environment.step_timeout_s) == (30.0, 5.0)
    assert [part.name for part in easy.rewards.components] == ["task_success"]
    assert [part.name for part in hard.rewards.components] == [part["name"] for part in staged["spec"].components]
    assert (easy.rollout.max_turns, hard.rollout.max_turns) == (4, 9)
    assert JobConfig.model_validate(plain.model_dump(mode="json")).courses == [easy, hard]


@pytest.mark.parametrize(
    ("group", "own"),
    [("data", {"train": "dataset:gone"}), ("environment", {"name": "environment:gone"}), ("rewards", {"spec": "x"})],
)
def test_what_a_stage_names_wrongly_is_reported_with_its_place(
    project: Project, staged: dict[str, Any], group: str, own: dict[str, str]
) -> None:
    raw = staged["config"].model_dump(mode="json")
    raw["curriculum"]["stages"][1][group] = own
    config = JobConfig.model_validate(raw)
    with pytest.raises(ConfigError) as caught:
        resolve(project, config)
    assert caught.value.option == f"curriculum.stages.1.{group}.{next(iter(own))}"
    outcome = preflight(project, config, full=False)
    assert outcome.blocked and outcome.checks[0].path == caught.value.option


def test_no_server_is_shown_the_token_of_another_stages_server(project: Project, staged: dict[str, Any]) -> None:
    token_write(staged["place"].pk, "one")
    names = [staged["place"].reference, staged["other"].reference]
    access = trainer_access(project, *names)
    assert (
        json.loads(access["TILTYARD_ENV_TOKENS"]) == {"127.0.0.1:65001": "one"} and "TILTYARD_ENV_TOKEN" not in access
    )
    assert trainer_access(project, names[0], names[0]) == {"TILTYARD_ENV_TOKEN": "one"}


def test_what_a_stage_uses_is_in_use(staged: dict[str, Any], make_run: Any) -> None:
    raw = staged["config"].model_dump(mode="json")
    raw["curriculum"]["stages"][1]["rewards"] = {"spec": staged["spec"].reference}
    raw["rewards"]["spec"] = ""
    run = make_run(config=raw, state="running")
    assert list(runs_of_dataset(staged["more"])) == [run] and list(runs_of_spec(staged["spec"])) == [run]
    with pytest.raises(ValidationError, match=run.name):
        require_unused(staged["other"])


def test_the_form_gives_the_stages_back_and_places_what_is_wrong(project: Project, staged: dict[str, Any]) -> None:
    form = RunForm(project=project, config=staged["config"], name="a")
    data = {path: form[path].value() for path in form.fields}
    data = {path: value for path, value in data.items() if value is not None and value is not False}
    shown = data["curriculum.stages"]
    assert shown.startswith("- name: easy\n  until_step: 10\n") and "rloo" not in shown
    again = RunForm(data, project=project)
    assert again.is_valid(), again.errors
    assert again.config is not None and again.config.curriculum == staged["config"].curriculum
    for wrong, message in {
        shown.replace("max_turns: 9", "max_turns: 0"): "curriculum.stages.1.rollout.max_turns",
        shown.replace("until_step: 10", "until_step: 100"): "the run ends at step 100",
        shown.replace("rollout:", "model:"): "There is no such option.",
        "name: easy": "Write a list",
        "- {": "not valid YAML",
    }.items():
        form = RunForm(data | {"curriculum.stages": wrong}, project=project)
        assert not form.is_valid() and message in str(form.errors["curriculum.stages"]), wrong


def test_checks_before_a_launch_look_at_every_stage(project: Project, staged: dict[str, Any]) -> None:
    found = preflight(project, staged["config"], full=False).checks
    titles = [check.title for check in found]
    assert titles.count("Rewards · easy") == titles.count("Rewards · hard") == 1
    assert {"Environment address · easy", "Environment address · hard"} <= set(titles)


def begins(stage: int, name: str, began: int, **over: Any) -> journal.StageStarted:
    return journal.StageStarted(
        **{"stage": stage, "of": 3, "name": name, "began": began, "step": began, "why": "steps"} | over
    )


def test_a_run_knows_its_stages_and_forgets_those_that_are_trained_again() -> None:
    batch = batch_of(begins(1, "a", 0, why="first"), begins(2, "b", 8), begins(3, "c", 20))
    assert batch.run_changes["health"]["stages"] == [
        {"stage": 1, "of": 3, "name": "a", "began": 0},
        {"stage": 2, "of": 3, "name": "b", "began": 8},
        {"stage": 3, "of": 3, "name": "c", "began": 20},
    ]
    resumed = begins(2, "b", 8, step=12, why="resumed")
    again = batch_of(resumed, health=batch.run_changes["health"])
    assert [each["name"] for each in again.run_changes["health"]["stages"]] == ["a", "b"]
    kind, payload, _at = again.events[0]
    assert [kind for kind in REPORT_KINDS if event_kind(kind) == kind] == []
    with translation.override("en"):
        assert event_text({"kind": kind, "payload": payload, "attempt": 2}) == "continues in stage 2 of 3: b"


@pytest.fixture
def run(project: Project, staged: dict[str, Any], make_run: Any) -> Any:
    """A run in its second stage, after step 12."""
    begun = [("easy", 0), ("hard", 10)]
    stages = [{"stage": n, "of": 2, "name": name, "began": began} for n, (name, began) in enumerate(begun, start=1)]
    plain = resolve(project, staged["config"]).config.model_dump(mode="json")
    return make_run(config=staged["config"], resolved=plain, health={"stages": stages}, state="running", step=12)


def test_a_step_has_the_options_of_its_stage(run: Any, make_run: Any, staged: dict[str, Any]) -> None:
    assert [stage_at(run, step) for step in (0, 1, 10, 11, 99)] == [1, 1, 1, 2, 2]
    configs = [config_at(run, step) for step in (10, 11)]
    assert [config.rollout.max_turns for config in configs if config] == [4, 9]
    assert stage_at(make_run(), 5) == 0
    whole = JobConfig.model_validate(run.resolved)
    names = {part["name"] for part in staged["spec"].components}
    assert {part.name for part in all_components(whole)} == names | {"task_success"}
    assert common_components(whole) == []


def test_rollouts_are_scored_with_the_rows_of_their_stage(run: Any) -> None:
    for step in (3, 12):
        rollout = Rollout.objects.create(
            run=run,
            attempt=1,
            step=step,
            group=0,
            index=0,
            row=1,
            status="completed",
            started_at=run.created_at,
            seq=step,
        )
        Turn.objects.create(rollout=rollout, run=run, number=0, seq=step, messages=[{"role": "user", "content": "go"}])
    rollouts = Rollout.objects.filter(run=run)
    rows = Rows(io.BytesIO(), run, rollouts, lambda: None)
    found = [
        episode.row["messages"][0]["content"] for _r, episode in found_in(rollouts.order_by("step"), rows) if episode
    ]
    assert found == ["easy 1", "hard 1"]


def test_a_run_with_stages_is_evaluated_as_it_ended(
    project: Project, run: Any, staged: dict[str, Any], bob: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-new", args=[project.slug])
    form = client_for(bob).get(address, {"from": str(run.pk), "kind": "evaluate"}).context["form"]
    assert (form["data.train"].value(), form["rollout.max_turns"].value()) == (staged["more"].reference, 9)
    assert form["environment.name"].value() == staged["other"].reference
    clone = client_for(bob).get(address, {"from": str(run.pk)}).context["form"]
    assert clone.start.curriculum == staged["config"].curriculum


def test_only_owners_see_where_the_servers_of_a_stage_are(
    project: Project, run: Any, alice: User, rita: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-config", args=[project.slug, run.pk])
    shown = client_for(rita).get(address).content.decode()
    assert "65002" not in shown and "rows.jsonl" not in shown and "until_step: 10" in shown
    assert "65002" in client_for(alice).get(address).content.decode()


def test_the_head_of_the_page_and_the_command_line_say_which_stage_it_is(
    run: Any, rita: User, client_for: Callable[..., Client], capsys: Any
) -> None:
    page = client_for(rita).get(reverse("run-detail", args=[run.project.slug, run.pk])).content.decode()
    assert "stage 2 of 2: hard" in page
    show.run({**in_shape(answers.RunView, aged(run)), "url": ""}, "")
    assert "2 of 2: hard" in capsys.readouterr().out
    show.run({**in_shape(answers.RunView, aged(run)), "url": "", "health": {}}, "")
    assert "stage" not in capsys.readouterr().out
