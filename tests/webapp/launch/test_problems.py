"""What is wrong with an option is shown at that option, wherever it was found.

Sentences used to begin with their option, and eight places took them apart again, each in its own way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pydantic import ValidationError

from training.config import JobConfig
from training.errors import ConfigError
from training.words import complaint_of, option_of
from webapp.launch.findings import YamlProblem, config_from_text, option_name
from webapp.launch.forms import RunForm
from webapp.people.teams.models import Project, User

CLIPPED = {"name": "length", "weight": 1, "clip": [2.0, 1.0]}


def found(raw: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        JobConfig.model_validate(raw)
    return [(option_of(error), str(complaint_of(error))) for error in caught.value.errors(include_url=False)]


def test_a_models_error_names_its_option_however_deep_it_lies() -> None:
    """A component's bounds had "rewards.components.0" as their place and "clip: …" as their sentence."""
    assert found({"rewards": {"components": [CLIPPED]}}) == [
        ("rewards.components.0.clip", "the lower bound is above the upper one")
    ]
    assert found({"rollout": {"max_turn_tokens": 4096, "max_completion_tokens": 1024}}) == [
        ("rollout.max_turn_tokens", "one turn cannot be longer than the whole episode")
    ]
    assert found({"optim": {"learning_rate": -1}})[0][0] == "optim.learning_rate"


def test_a_config_error_says_option_and_sentence_apart_and_both_together() -> None:
    error = ConfigError("choose a dataset: there is none.", option="data.train", hint="Upload one.")
    assert (error.option, error.sentence) == ("data.train", "choose a dataset: there is none.")
    assert error.info.message == str(error) == "data.train: choose a dataset: there is none."
    assert ConfigError("Note: this is no option.").option == ""


def test_the_line_of_a_nested_option_is_found() -> None:
    text = "rewards:\n  components:\n  - name: length\n    weight: 1\n    clip: [2.0, 1.0]\n"
    with pytest.raises(YamlProblem) as caught:
        config_from_text(text)
    assert [tuple(problem) for problem in caught.value.problems] == [
        (5, "rewards.components.0.clip", "the lower bound is above the upper one")
    ]


@pytest.mark.django_db
def test_a_form_shows_it_at_the_option_or_at_what_holds_it(project: Project) -> None:
    form = RunForm({"name": "x", "kind": "grpo"}, project=project)
    form.is_valid()
    form.place("data.train", "there is none: upload one.")
    form.place("rewards.components.0.clip", "the lower bound is above the upper one")
    form.place("", "Note: this belongs to no option.")
    assert form.errors["data.train"][-1] == "there is none: upload one."
    assert form.errors["rewards.components"][-1] == "rewards.components.0.clip: the lower bound is above the upper one"
    assert "Note: this belongs to no option." in form.non_field_errors()


@pytest.mark.django_db
def test_the_api_names_the_option_of_a_reference(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    body = {"name": "lost", "config": {"data": {"train": "dataset:nowhere"}, "environment": {"name": "none"}}}
    address = f"/api/v1/projects/{project.slug}/runs"
    answer = client_for(bob).post(address, json.dumps(body), content_type="application/json")
    assert answer.status_code == 422
    [detail] = answer.json()["detail"]
    assert detail["path"] == "data.train" and not detail["message"].startswith("data.train")


def test_an_unknown_option_names_the_one_that_was_meant(project: Project, bob: User, client_for: Any) -> None:
    """``run clone --set reward.x=1`` was answered with "Extra inputs are not permitted"."""
    with pytest.raises(YamlProblem) as caught:
        config_from_text("modle: {source: starter}\noptim: {lerning_rate: 0.1}\nzzz: 1\n")
    found = {problem.path: (problem.line, problem.message) for problem in caught.value.problems}
    assert found["modle"] == (1, "There is no such option. Did you mean model?")
    assert found["optim.lerning_rate"] == (2, "There is no such option. Did you mean optim.learning_rate?")
    assert found["zzz"] == (3, "There is no such option.")
    address = f"/api/v1/projects/{project.slug}/runs"
    sent = {"name": "a", "config": {"reward": {"spec": "x"}}}
    answer = client_for(bob).post(address, sent, "application/json")
    assert answer.status_code == 422
    assert answer.json()["detail"] == [{"path": "reward", "message": "There is no such option. Did you mean rewards?"}]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("optim.learning_rate", "Learning rate"),
        ("hardware.verl_options.0", "Options of verl, entry 1"),
        ("hardware.verl_options.9", "Options of verl, entry 10"),
        ("rewards.components.0.weight", "rewards.components.0.weight"),
        ("kind", "kind"),
        ("no.such.0", "no.such.0"),
    ],
)
def test_an_option_and_an_entry_of_a_list_have_names(path: str, name: str) -> None:
    assert option_name(path) == name
