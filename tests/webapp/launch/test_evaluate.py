"""From a run or a model to the form that evaluates it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from training.config import JobConfig
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db


def test_a_run_is_evaluated_with_what_it_was_trained_on(
    project: Project, bob: User, make_run: Any, make_dataset: Any, client_for: Callable[..., Client]
) -> None:
    data = make_dataset()
    trained = {"data": {"train": data.reference}, "rollout": {"temperature": 0.7}, "run": {"seed": 9}}
    run = make_run(config=JobConfig.model_validate(trained), name="first", state="succeeded")
    client = client_for(bob)
    page = client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    found = re.search(r'id="run-evaluate"\s+href="([^"]+)"', page)
    assert found is not None
    answer = client.get(html.unescape(found[1]))
    form = answer.context["form"]
    wanted = {
        "kind": "evaluate",
        "name": "first-evaluate-1",
        "model.source": "run:first",
        "data.train": data.reference,
        "rollout.temperature": 0.7,
        "run.seed": 9,
    }
    assert {path: form[path].value() for path in wanted} == wanted
    for other in (make_run(state="failed"), make_run(state="succeeded", imported_from="verl")):
        page = client.get(reverse("run-detail", args=[project.slug, other.pk])).content.decode()
        assert "run-evaluate" not in page
    models = client.get(reverse("model-list", args=[project.slug])).content.decode()
    assert "?kind=evaluate&amp;model=starter" in models


def test_who_comes_from_a_run_sees_its_form_first(
    project: Project, bob: User, make_run: Any, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-new", args=[project.slug])
    run = make_run(name="first", state="succeeded")
    page = client_for(bob).get(f"{address}?from={run.pk}&kind=evaluate").content.decode()
    assert "Start from a preset instead" in page
    fresh = client_for(bob).get(address).content.decode()
    assert "Start from a preset" in fresh and "Start from a preset instead" not in fresh
