"""What shapes a component's value: edited in the form, shown on the page and in the history."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from training.config import RewardComponent
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.selectors import ShapeForm, changes_between, parts_of
from webapp.rewards.services import reward_spec_save

SHAPED: dict[str, Any] = {
    "clip": [0, 0.5],
    "scale": [-1, 1],
    "categories": ["base", "long context"],
    "gate": {"component": "final_answer", "above": 0.2},
    "schedule": {"end": 50, "last": 0.1},
}


@pytest.fixture
def spec(project: Project, bob: User) -> RewardSpec:
    parts = [RewardComponent(name="coherence", weight=0.4, **SHAPED), RewardComponent(name="final_answer", weight=0.6)]
    return reward_spec_save(project=project, user=bob, name="mine", components=parts)


def sent(answer: Any) -> dict[str, Any]:
    """What a browser sends for the form of this page, unchanged."""
    form = answer.context["form"]
    fields = [form[name] for name in form.fields]
    data: dict[str, Any] = {}
    for part in (part for family in form.families() for part in family.parts if part.shape):
        fields += list(part.shape)
        data[f"{part.name}.shape"] = "1"
    values = {field.html_name: field.value() for field in fields}
    values = {key: "\n".join(value) if isinstance(value, list) else value for key, value in values.items()}
    return data | {key: value for key, value in values.items() if value is not False and value is not None}


def test_the_fields_around_a_value_give_back_what_they_were_given() -> None:
    part = RewardComponent.model_validate(
        {
            "name": "coherence",
            "weight": 1,
            "clip": [0, 0.5],
            "scale": [-1, 1],
            "categories": ["base", "long context"],
            "gate": {"component": "final_answer", "above": 0.2},
            "schedule": {"end": 50, "last": 0.1},
        }
    )
    given = ShapeForm.initial_of(part) | {"categories": "\n".join(part.categories)}
    form = ShapeForm(given, others=[("final_answer", "Final answer")])
    assert form.is_valid(), form.errors
    assert (
        part.model_copy(update={"weight": 2}).model_dump()
        == RewardComponent.model_validate({"name": "coherence", "weight": 2, **form.cleaned_data["shape"]}).model_dump()
    )
    empty = ShapeForm({})
    assert empty.is_valid() and empty.cleaned_data["shape"] == {
        "clip": None,
        "scale": None,
        "gate": None,
        "schedule": None,
        "categories": [],
    }
    for sent, field in (
        ({"clip_low": "1"}, "clip_low"),
        ({"clip_low": "2", "clip_high": "1"}, "clip_low"),
        ({"scale_low": "1", "scale_high": "1"}, "scale_low"),
        ({"gate_component": "nobody"}, "gate_component"),
        (
            {
                "schedule_kind": "linear",
                "schedule_begin": "9",
                "schedule_end": "1",
                "schedule_first": "1",
                "schedule_last": "0",
            },
            "schedule_kind",
        ),
    ):
        assert list(ShapeForm(sent, others=[("final_answer", "")]).errors) == [field]


def test_an_untouched_form_keeps_the_shape(
    project: Project, bob: User, client_for: Callable[..., Client], spec: RewardSpec
) -> None:
    client, address = client_for(bob), reverse("reward-edit", args=[project.slug, spec.pk])
    data = sent(client.get(address))
    assert data["coherence.shape-clip_high"] == 0.5 and data["coherence.shape-gate_component"] == "final_answer"
    assert data["coherence.shape-categories"] == "base\nlong context"
    assert "tool_correctness.shape-clip_low" not in data  # no part of the spec
    assert 'name="coherence.shape"' in client.get(address).content.decode()
    assert client.post(address, data).status_code == 302
    without = {key: value for key, value in data.items() if ".shape" not in key}  # as a script that knows no shapes
    assert client.post(address, without).status_code == 302
    assert RewardSpec.objects.count() == 1


def test_a_shape_is_changed_taken_away_and_refused(
    project: Project, bob: User, client_for: Callable[..., Client], spec: RewardSpec
) -> None:
    client, address = client_for(bob), reverse("reward-edit", args=[project.slug, spec.pk])
    data = sent(client.get(address))
    changed = data | {
        "coherence.shape-schedule_kind": "",
        "coherence.shape-gate_component": "",
        "coherence.shape-clip_low": "0.1",
        "final_answer.shape-gate_component": "coherence",
        "coherence.shape-categories": "",
    }
    assert (answered := client.post(address, changed)).status_code == 302, answered.context["form"].errors
    newer = RewardSpec.objects.get(version=2)
    coherence, answer = (RewardComponent.model_validate(part) for part in newer.components)
    assert (coherence.clip, coherence.schedule, coherence.gate) == ([0.1, 0.5], None, None)
    assert answer.gate is not None and (answer.gate.component, answer.gate.above) == ("coherence", 0.0)
    lines = {change.what: (change.before, change.after) for change in changes_between(spec, newer)}
    assert lines["Coherence · Weight schedule"][1] == "" and "at step 50" in lines["Coherence · Weight schedule"][0]
    assert lines["Final answer · Gate"] == ("", "counts only where Coherence is above 0, else 0")
    wrong = client.post(address, data | {"coherence.shape-clip_low": "2"})
    page = unescape(wrong.content.decode())
    assert wrong.status_code == 422 and RewardSpec.objects.count() == 2
    assert "the lower bound is above the upper one" in page and "check the shaping of its value" in page


def test_the_page_shows_all_of_it(
    project: Project, rita: User, client_for: Callable[..., Client], spec: RewardSpec
) -> None:
    coherence, answer = parts_of(spec)
    assert {line.what: line.words for line in coherence.shape} == {
        "Clip": "values below 0 or above 0.5 are moved to the nearer end",
        "Scale": "-1 becomes 0, 1 becomes 1",
        "Gate": "counts only where Final answer is above 0.2, else 0",
        "Weight schedule": "weight × 1 until step 0, then in a straight line to × 0.1 at step 50",
        "Only rows of": "base, long context",
    }
    assert answer.shape == []
    page = client_for(rita).get(reverse("reward-detail", args=[project.slug, spec.pk])).content.decode()
    assert all(line.words in unescape(page) for line in coherence.shape)
