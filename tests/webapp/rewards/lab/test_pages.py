"""The lab's pages: sets, the facts that its script starts from, saving, and the fields around a value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from training.rewards.scoring import COMPONENTS, form_components
from webapp.people.teams.models import Project, User
from webapp.rewards.lab.views import editor_of
from webapp.rewards.models import RewardSpec, RolloutSet, SetState
from webapp.rewards.services import reward_spec_save

pytestmark = pytest.mark.django_db
TALK = '[{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]'


def _facts(page: Any) -> dict[str, Any]:
    text = page.content.decode().split('<script id="lab-data" type="application/json">')[1].split("</script>")[0]
    facts: dict[str, Any] = json.loads(text)
    return facts


def _fail(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def test_a_set_is_made_from_a_form_that_says_what_is_wrong(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client], recorded_run: Any
) -> None:
    address, client = reverse("lab", args=[project.slug]), client_for(bob)
    empty = client_for(rita).get(address).content.decode()
    assert "Nothing to score yet" in empty and "ask an editor" in empty and '<form class="card-body' not in empty
    run = recorded_run(steps=2)
    for sent, field, words in (
        ({"kind": "pasted", "text": "{"}, "text", "not valid JSON"),
        ({"kind": "cases"}, "kind", "no reward test cases yet"),
        ({"kind": "run", "run": run.pk, "first_step": 3}, "run", "no finished rollouts"),
        ({"kind": "run"}, "run", "Choose a run"),
        ({"kind": "run", "run": run.pk, "last_step": -1}, "last_step", "greater than or equal to 0"),
        ({"kind": "run", "run": run.pk, "name": "../x"}, "name", "Use letters"),
    ):
        answer = client.post(address, sent)
        assert answer.status_code == 422 and words in " ".join(answer.context["form"].errors[field])
    answer = client.post(address, {"kind": "run", "run": run.pk, "first_step": 2})
    made = RolloutSet.objects.get()
    assert answer["Location"] == reverse("lab-set", args=[project.slug, made.pk])
    assert (made.name, made.first_step, made.created_by) == (f"{run.name} 2-", 2, bob)
    assert "Waiting for a worker" in client.get(answer["Location"]).content.decode()
    client.post(address, {"kind": "pasted", "text": TALK})
    names = client.get(address).content.decode()
    assert run.name in names and "from step 2" in names and "Pasted 2" in names


def test_a_run_leads_to_its_newest_set_and_makes_it_once(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client], recorded_run: Any, make_run: Any
) -> None:
    run, spec = (
        recorded_run(),
        reward_spec_save(project=project, user=bob, name="mine", components=form_components()),
    )
    address = f"{reverse('lab', args=[project.slug])}?run={run.pk}"
    assert "ask an editor" in client_for(rita).get(address).content.decode() and not RolloutSet.objects.exists()
    for _again in range(2):
        answer = client_for(bob).get(f"{address}&spec={spec.pk}")
        assert (
            answer["Location"]
            == reverse("lab-set", args=[project.slug, RolloutSet.objects.get().pk]) + f"?spec={spec.pk}"
        )
    RolloutSet.objects.update(state=SetState.FAILED)
    client_for(bob).get(address)
    assert RolloutSet.objects.count() == 2
    RolloutSet.objects.update(state=SetState.READY, found_by="Outcome: solved")  # chosen rollouts, not all of the run
    whole = client_for(bob).get(address)["Location"]
    assert RolloutSet.objects.count() == 3 and RolloutSet.objects.filter(found_by="").count() == 1
    RolloutSet.objects.create(project=project, name="solved", kind="run", run=run, state="ready", found_by="solved")
    assert client_for(bob).get(address)["Location"] == whole
    nothing = client_for(bob).get(f"{reverse('lab', args=[project.slug])}?run={make_run().pk}").content.decode()
    assert "no finished rollouts" in nothing
    for wrong in ("nonsense", str(spec.pk)):
        assert client_for(bob).get(f"{reverse('lab', args=[project.slug])}?run={wrong}").status_code == 404


def test_the_page_starts_from_what_the_run_scored_with(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client], recorded_run: Any, built: Any
) -> None:
    run = recorded_run()
    made = built(kind="run", run=run)
    older = reward_spec_save(project=project, user=bob, name="mine", components=form_components()[:1])
    newest = reward_spec_save(project=project, user=bob, name="mine", components=form_components())
    address = reverse("lab-set", args=[project.slug, made.pk])
    facts = _facts(client_for(rita).get(address))
    assert [item["key"] for item in facts["choices"]] == ["run", str(newest.pk), "start"] and facts["spec"] == "run"
    assert [part["name"] for part in facts["choices"][0]["components"]] == ["task_success", "numeric_match"]
    assert (facts["set"]["rollouts"], facts["can_edit"]) == (16, False)
    assert facts["urls"]["launch"] == reverse("run-new", args=[project.slug]) + f"?from={run.pk}"
    asked = _facts(client_for(bob).get(f"{address}?spec={older.pk}"))
    assert asked["spec"] == str(older.pk) and len(asked["choices"]) == 4 and asked["can_edit"]
    run.config["rewards"] = {"spec": older.reference, "components": []}
    run.save(update_fields=["config"])
    named = _facts(client_for(bob).get(f"{address}?spec=nonsense&against={'0' * 36}"))
    assert named["spec"] == str(older.pk)
    run.config["rewards"] = {}
    run.save(update_fields=["config"])
    assert _facts(client_for(bob).get(address))["spec"] == "run", "what was filled in at its launch"
    run.resolved["rewards"] = {}
    run.save(update_fields=["resolved"])
    by_form = _facts(client_for(bob).get(address))
    assert by_form["spec"] == "start", "as runs without a spec were scored before 0.2"
    names = [part["name"] for part in by_form["choices"][0]["components"]]
    assert names == [part.name for part in form_components()]
    page = client_for(bob).get(address).content.decode()
    assert all(f'<template data-editor="{name}">' in page for name in COMPONENTS)
    text = page.split('<script id="lab-data" type="application/json">')[1].split("</script>")[0]
    json.loads(text, parse_constant=_fail)  # limits of components may be infinite, and a browser reads no Infinity


def test_progress_ends_with_the_page_and_a_failure_says_what_to_do(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    made = RolloutSet.objects.create(
        project=project, name="set", kind="pasted", progress={"done": 250, "total": 1000, "token": "t", "at": 9e12}
    )
    address, client = reverse("lab-set-progress", args=[project.slug, made.pk]), client_for(rita)
    answer = client.get(address)
    assert "25% · 250 of 1,000 rollouts" in answer.content.decode() and "HX-Refresh" not in answer
    error = {"code": "set_unbuildable", "boundary": "data", "message": "Line 3 is too long."}
    RolloutSet.objects.update(state=SetState.FAILED, error=error)
    assert client.get(address)["HX-Refresh"] == "true"
    page = client.get(reverse("lab-set", args=[project.slug, made.pk])).content.decode()
    assert "Line 3 is too long." in page and "create the set again" in page and "lab-data" not in page
    assert client_for(bob).post(reverse("lab-set-delete", args=[project.slug, made.pk])).status_code == 302
    assert not RolloutSet.objects.exists()


def test_saving_makes_the_next_version_or_says_why_not(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    address, client = reverse("lab-save", args=[project.slug]), client_for(bob)

    def save(body: Any) -> Any:
        return client.post(
            address, body if isinstance(body, str) else json.dumps(body), content_type="application/json"
        )

    parts = [{"name": "final_answer", "weight": 0.5, "params": {}, "clip": [0, 0.9]}]
    first, again = (
        save({"name": "mine", "components": parts}).json(),
        save({"name": "mine", "components": parts}).json(),
    )
    assert first == again and first["label"] == "mine@1" and first["reference"] == "reward:mine@1"
    parts[0]["weight"] = 0.6
    assert save({"name": " mine ", "components": parts}).json()["label"] == "mine@2"
    assert RewardSpec.objects.get(version=2).components[0]["clip"] == [0, 0.9]
    for body, place, words in (
        ({"name": "mine", "components": [*parts, {"name": "coherence", "weight": 101}]}, "1", "at most 100"),
        ({"name": "mine", "components": []}, "", "at least 1"),
        ({"name": "", "components": parts}, "name", "Use letters"),
        ({"name": "mine", "components": [{"name": "nobody", "weight": 1}]}, "__all__", "no reward component `nobody`"),
        ("{", "", "JSON"),
    ):
        answer = save(body)
        assert answer.status_code == 422 and words in " ".join(answer.json()["detail"][place]), answer.json()
    assert RewardSpec.objects.count() == 2


def test_every_parameter_has_a_field_that_a_script_reads_as_its_type() -> None:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "text", list: "lines"}
    for component in COMPONENTS.values():
        fields = {param.key: param.kind for param in editor_of(component).params}
        model = component.params
        defaults = {
            key: value
            for key, value in model().model_dump(mode="json").items()
            if (model.model_fields[key].json_schema_extra or {}).get("widget") != "code"
        }
        assert list(fields) == list(defaults)
        for key, value in defaults.items():
            assert fields[key] == kinds.get(type(value), fields[key]), f"{component.name}.{key}"
