"""Reward specs: saving, versions, differences, trying."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from training.config import RewardComponent
from training.rewards.scoring import COMPONENTS, form_components, starting_components
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.selectors import changes_between
from webapp.rewards.services import reward_spec_save, reward_try
from webapp.rewards.views import RewardSpecForm

TALK = [
    {"role": "user", "content": "What is 12 * 7?"},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "calc", "arguments": '{"x": 1}'}}]},
    {"role": "tool", "tool_call_id": "1", "content": "84"},
    {"role": "assistant", "content": "12 times 7 is 84."},
]


def _data(**over: Any) -> dict[str, Any]:
    """What a browser sends for the untouched form."""
    form = RewardSpecForm(initial={"name": "mine"})
    data = {name: form[name].value() for name in form.fields}
    data = {key: "\n".join(value) if isinstance(value, list) else value for key, value in data.items()}
    return {key: value for key, value in (data | over).items() if value is not False and value is not None}


def test_form_starts_from_the_outcome_and_its_shaping(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    answer = client_for(bob).post(reverse("reward-new", args=[project.slug]), _data())
    spec = RewardSpec.objects.get()
    assert answer.status_code == 302
    assert [(part["name"], part["weight"]) for part in spec.components] == [
        (part.name, part.weight) for part in starting_components()
    ]
    assert (spec.components[0]["name"], spec.components[0]["weight"]) == ("task_success", 0.6)
    assert all(part["params"] == {} for part in spec.components)


def test_a_parameter_that_may_be_empty_is_stored_empty(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    assert _data()["task_success.params.cut_off"] == 0.0
    for sent, stored in (("", {"cut_off": None}), ("-0.5", {"cut_off": -0.5}), ("0", {})):
        data = _data(**{"task_success.on": "on", "task_success.params.cut_off": sent})
        client_for(bob).post(reverse("reward-new", args=[project.slug]), data)
        spec = RewardSpec.objects.order_by("-version").first()
        assert spec is not None
        assert {part["name"]: part["params"] for part in spec.components}["task_success"] == stored
    data = _data(**{"task_success.on": "on", "task_success.params.cut_off": "-2"})
    assert client_for(bob).post(reverse("reward-new", args=[project.slug]), data).status_code == 422


def test_edit_makes_the_next_version_and_no_change_makes_none(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    first = reward_spec_save(project=project, user=bob, name="mine", components=starting_components())
    address, client = reverse("reward-edit", args=[project.slug, first.pk]), client_for(bob)
    client.post(address, _data())
    assert RewardSpec.objects.count() == 1
    client.post(address, _data(**{"coherence.on": False, "final_answer.weight": "0.3", "result_use.params.ngram": "3"}))
    second = RewardSpec.objects.get(version=2)
    changes = {change.what: (change.before, change.after) for change in changes_between(first, second)}
    assert changes == {
        "Final answer · weight": ("0.08", "0.3"),
        "Coherence · weight": ("0.04", ""),
        "Use of results · CJK n-gram": ("", "3"),
    }
    page = client.get(reverse("reward-detail", args=[project.slug, second.pk])).content.decode()
    assert "Changed since @1" in page


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"coherence.weight": "abc"}, "Enter a number"),
        ({"coherence.weight": "101"}, "less than or equal to 100"),
        ({"coherence.weight": ""}, "needs a weight"),
        ({"coherence.weight": "nan"}, "Enter a number"),
        ({"result_use.params.ngram": "9"}, "less than or equal to 4"),
        ({"final_answer.params.min_chars": "600"}, "above the upper one"),
        ({f"{name}.on": False for name in COMPONENTS}, "at least one component"),
        ({f"{name}.weight": "0" for name in COMPONENTS}, "All weights are 0"),
        ({"name": "a/b"}, "Use letters"),
    ],
)
def test_wrong_input_is_reported_at_its_field(
    over: dict[str, Any], words: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    answer = client_for(bob).post(reverse("reward-new", args=[project.slug]), _data(**over))
    assert answer.status_code == 422 and words in answer.content.decode()
    assert not RewardSpec.objects.exists()


def test_unknown_component_is_refused(project: Project, bob: User) -> None:
    with pytest.raises(ValidationError, match="no reward component"):
        reward_spec_save(project=project, user=bob, name="x", components=[RewardComponent(name="os_system", weight=1)])


def test_what_the_form_does_not_show_survives_an_edit(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    gate = {"component": "task_success", "above": 0.5}
    parts = [
        RewardComponent.model_validate({"name": "coherence", "weight": 1, "clip": [0, 1], "gate": gate}),
        RewardComponent(name="task_success", weight=1),
    ]
    first = reward_spec_save(project=project, user=bob, name="mine", components=parts)
    assert first.components[0] == {"name": "coherence", "weight": 1.0, "params": {}, "clip": [0.0, 1.0], "gate": gate}
    client = client_for(bob)
    form = RewardSpecForm(initial={"name": "mine"}, components=parts)
    data = {name: form[name].value() for name in form.fields}
    data = {key: "\n".join(value) if isinstance(value, list) else value for key, value in data.items()}
    data = {key: value for key, value in data.items() if value is not False and value is not None}
    client.post(reverse("reward-edit", args=[project.slug, first.pk]), data | {"coherence.weight": "0.5"})
    second = RewardSpec.objects.get(version=2)
    assert second.components[0]["weight"] == 0.5 and second.components[0]["gate"] == gate
    assert client.get(reverse("reward-detail", args=[project.slug, second.pk])).status_code == 200


def test_trying_applies_gate_and_clip_and_asks_no_judge() -> None:
    parts = [
        RewardComponent.model_validate({"name": "coherence", "weight": 1, "gate": {"component": "task_success"}}),
        RewardComponent.model_validate({"name": "task_success", "weight": 2, "clip": [0, 0.5]}),
    ]
    won = reward_try(user=User(pk=1), components=parts, text=json.dumps({"messages": TALK, "env_reward": 1}))
    lost = reward_try(user=User(pk=1), components=parts, text=json.dumps({"messages": TALK, "env_reward": 0}))
    assert won.total == pytest.approx(won.parts[0][1] + 2 * 0.5) and lost.total == 0.0
    judge = RewardComponent(name="judge", weight=1, params={"url": "http://127.0.0.1:9/v1", "model": "m"})
    with pytest.raises(ValidationError, match="which is not available here"):
        reward_try(user=User(pk=1), components=[judge], text=json.dumps(TALK))


def test_try_scores_a_conversation() -> None:
    tried = reward_try(user=User(pk=1), components=form_components(), text=json.dumps(TALK))
    assert len(tried.parts) == 5
    assert tried.total == pytest.approx(sum(product for *_rest, product in tried.parts))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "[]",
        "3",
        '{"messages": 4}',
        "[" * 60_000,
        '[{"role": "king"}]',
        "[1]",
        " " * 70_000 + "[]",
        '[{"role":"assistant","tool_calls":[3]}]',
        '[{"role":"assistant","tool_calls":[{"function":{"arguments":"x"}}]}]',
        json.dumps([{"role": "user"}] * 300),
        '{"messages": [{"role": "user"}], "env_reward": "1"}',
    ],
)
def test_try_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        reward_try(user=User(pk=1), components=form_components(), text=text)
    assert caught.value.messages[0].endswith(".")


def test_try_page_answers_as_fragment_and_as_page(
    project: Project, rita: User, client_for: Callable[..., Client]
) -> None:
    spec = reward_spec_save(project=project, user=None, name="mine", components=form_components())
    address, client = reverse("reward-try", args=[project.slug, spec.pk]), client_for(rita)
    fragment = client.post(address, {"conversation": json.dumps(TALK)}, headers={"HX-Request": "true"})
    assert fragment.status_code == 200 and b"<tfoot>" in fragment.content and b"<html" not in fragment.content
    assert client.post(address, {"conversation": "nope"}).status_code == 422


def test_spec_in_use_is_not_deleted(
    project: Project, bob: User, make_run: Any, client_for: Callable[..., Client]
) -> None:
    spec = reward_spec_save(project=project, user=bob, name="mine", components=form_components())
    make_run(config={"rewards": {"spec": spec.reference}})
    answer = client_for(bob).post(reverse("reward-delete", args=[project.slug, spec.pk]), follow=True)
    assert "not ended" in answer.content.decode() and RewardSpec.objects.exists()


def test_families_without_a_choice_are_folded() -> None:
    families = {family.title: family for family in RewardSpecForm().families()}
    shown = {title: (family.chosen, len(family.parts), family.open) for title, family in families.items()}
    assert shown["Tool calling"] == (5, 5, True)
    assert shown["The environment's own reward"] == (1, 1, True)
    assert shown["ToolBench"][0] == 0 and not families["ToolBench"].open
    assert sum(len(family.parts) for family in families.values()) == len(COMPONENTS) - 1  # code has a page of its own
    chosen = RewardSpecForm(components=[RewardComponent(name="webshop_score", weight=1.0)])
    opened = [family.title for family in chosen.families() if family.open]
    assert opened == ["The environment's own reward", "WebShop"]


def test_a_version_is_compared_with_the_one_before_or_the_one_that_is_asked_for(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    client, specs = client_for(bob), []
    for weight in (1, 2, 3):
        parts = [RewardComponent(name="coherence", weight=weight)]
        specs.append(reward_spec_save(project=project, user=bob, name="mine", components=parts))
    address = reverse("reward-detail", args=[project.slug, specs[2].pk])
    for query, version, before in (
        ("", 2, "2"),
        ("?against=1", 1, "1"),
        ("?against=9", 2, "2"),
        ("?against=3", None, None),
    ):
        context = client.get(address + query).context
        assert (context["compared"] and context["compared"].version) == version
        assert [change.before for change in context["changes"]] == ([before] if before else [])
    first = client.get(reverse("reward-detail", args=[project.slug, specs[0].pk])).context
    assert first["compared"] is None and [spec.version for spec in first["versions"]] == [3, 2, 1]
    edit, delete = (reverse(name, args=[project.slug, specs[2].pk]) for name in ("reward-edit", "reward-delete"))
    for who, offers in ((bob, True), (rita, False)):
        page = client_for(who).get(address).content.decode()
        assert (edit in page, delete in page) == (offers, offers)
    assert client_for(rita).post(delete).status_code == 403
    assert "mine@3 was deleted." in client.post(delete, follow=True).content.decode()


def test_saving_says_whether_there_is_a_new_version(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    spec = reward_spec_save(project=project, user=bob, name="mine", components=starting_components())
    address, client = reverse("reward-edit", args=[project.slug, spec.pk]), client_for(bob)
    said = client.post(address, _data(), follow=True).content.decode()
    assert "Nothing changed, so there is no new version of mine@1." in said
    said = client.post(address, _data(**{"final_answer.weight": "0.3"}), follow=True).content.decode()
    assert "mine@2 is saved." in said


def test_a_case_that_is_removed_leads_back_to_the_page_that_showed_it(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    spec = reward_spec_save(project=project, user=bob, name="mine", components=starting_components())
    back = {str(spec.pk): f"/p/joust/rewards/{spec.pk}/", "": "/p/joust/rewards/", "nonsense": "/p/joust/rewards/"}
    for sent, location in back.items():
        case = RewardCase.objects.create(project=project, name="c", messages=[], prompt_length=0, row={}, total=[0, 1])
        address = reverse("reward-case-delete", args=[project.slug, case.pk])
        assert client_for(rita).post(address, {"spec": sent}).status_code == 403
        answer = client_for(bob).post(address, {"spec": sent}, follow=True)
        assert answer.redirect_chain[0][0] == location and "The test case c was deleted." in answer.content.decode()
    assert not RewardCase.objects.exists()
