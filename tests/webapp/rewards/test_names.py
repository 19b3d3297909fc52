"""Components under names of their own in the reward form: kept, shown, edited, added; and in cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from training.config import RewardComponent
from webapp.people.teams.models import Project, User
from webapp.rewards.cases import cases_under, reward_case_create
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.selectors import component_titles
from webapp.rewards.services import reward_spec_save
from webapp.rewards.views import RewardSpecForm

PARTS = [
    RewardComponent(name="polite", function="regex_match", weight=1, params={"pattern": "please"}),
    RewardComponent(name="regex_match", weight=0.5, params={"pattern": "^a"}),
    RewardComponent(name="coherence", function="regex_match", weight=0.25, params={"pattern": "b"}),
]


def _data(form: RewardSpecForm, **over: Any) -> dict[str, Any]:
    """What a browser sends for a form."""
    data = {name: form[name].value() for name in form.fields}
    data = {key: "\n".join(value) if isinstance(value, list) else value for key, value in data.items()}
    data |= {"extra": form.extras, "add.function": "regex_match", "add.name": ""} | over
    return {key: value for key, value in data.items() if value is not False and value is not None}


@pytest.fixture
def spec(project: Project, bob: User) -> RewardSpec:
    return reward_spec_save(project=project, user=bob, name="mine", components=PARTS)


def _form(spec: RewardSpec) -> RewardSpecForm:
    parts = [RewardComponent.model_validate(part) for part in spec.components]
    return RewardSpecForm(components=parts, initial={"name": spec.name})


def test_an_edit_keeps_changes_and_shows_them(
    project: Project, bob: User, spec: RewardSpec, client_for: Callable[..., Client]
) -> None:
    client, address = client_for(bob), reverse("reward-edit", args=[project.slug, spec.pk])
    page = client.get(address).content.decode()
    assert 'name="polite.params.pattern"' in page and 'value="polite:regex_match"' in page
    client.post(address, _data(_form(spec)))
    assert RewardSpec.objects.count() == 1, "nothing changed"
    client.post(address, _data(_form(spec), **{"polite.params.pattern": "thanks", "coherence.on": False}))
    second = RewardSpec.objects.get(version=2)
    assert [(part["name"], part.get("function", ""), part["params"]["pattern"]) for part in second.components] == [
        ("polite", "regex_match", "thanks"),
        ("regex_match", "", "^a"),
    ]


def test_another_is_added_filled_in_and_saved(
    project: Project, bob: User, spec: RewardSpec, client_for: Callable[..., Client]
) -> None:
    client, address = client_for(bob), reverse("reward-edit", args=[project.slug, spec.pk])
    answer = client.post(address, _data(_form(spec), **{"add": "1", "add.name": "numbers", "polite.weight": "3"}))
    form = answer.context["form"]
    assert answer.status_code == 200 and RewardSpec.objects.count() == 1
    assert form["numbers.on"].value() is True and form["polite.weight"].value() == "3"
    assert "numbers:regex_match" in form.extras
    client.post(address, _data(form, **{"numbers.params.pattern": "[0-9]"}))
    second = RewardSpec.objects.get(version=2)
    assert [part["name"] for part in second.components] == ["polite", "regex_match", "coherence", "numbers"]
    assert second.components[3] == {
        "name": "numbers",
        "function": "regex_match",
        "weight": second.components[3]["weight"],
        "params": {"pattern": "[0-9]"},
    }
    assert second.components[0]["weight"] == 3.0


def test_what_cannot_be_added_is_reported(
    project: Project, bob: User, spec: RewardSpec, client_for: Callable[..., Client]
) -> None:
    address, client = reverse("reward-edit", args=[project.slug, spec.pk]), client_for(bob)
    data = _data(_form(spec), extra=[*_form(spec).extras, "bad", "x:y", ":"])
    for name, function, words in (
        ("polite", "regex_match", "already"),
        ("task_success", "regex_match", "already"),
        ("", "regex_match", "begins"),
        ("a b", "regex_match", "begins"),
        ("x" * 65, "regex_match", "begins"),
        ("ok", "os_system", "Choose what"),
        ("ok", "custom_python", "Choose what"),
    ):
        answer = client.post(address, data | {"add": "1", "add.name": name, "add.function": function})
        assert answer.status_code == 422 and words in answer.context["form"].add_problem
    assert RewardSpec.objects.count() == 1


def test_cases_speak_of_these_names(project: Project, bob: User, spec: RewardSpec) -> None:
    titles = component_titles(project)
    assert "(polite)" in titles["polite"] and "custom_python" not in titles
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a, please"}]
    case = RewardCase(
        name="kind", messages=messages, prompt_length=1, expected={"polite": [1, 1], "regex_match": [1, 1]}
    )
    reward_case_create(case=case, project=project, user=bob)
    (view,) = cases_under(spec, bob)
    assert view.passed is True
    case = RewardCase(name="odd", messages=messages, prompt_length=1, expected={"nobody": [0, 1]})
    with pytest.raises(ValidationError, match="no reward component"):
        reward_case_create(case=case, project=project, user=bob)
