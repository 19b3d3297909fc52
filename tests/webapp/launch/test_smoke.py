"""Every page of datasets, rewards, environments, models and launching opens, in both languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from webapp.people.teams.models import Project, User


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("filled", [False, True])
def test_pages_open(
    language: str,
    filled: bool,
    project: Project,
    bob: User,
    rita: User,
    client_for: Callable[..., Client],
    make_dataset: Any,
    make_reward_spec: Any,
    make_environment: Any,
    make_run: Any,
) -> None:
    addresses = [
        reverse(name, args=[project.slug])
        for name in (
            "dataset-list",
            "dataset-new",
            "reward-list",
            "reward-new",
            "environment-list",
            "environment-new",
            "model-list",
            "model-new",
            "run-new",
            "run-yaml",
        )
    ]
    if filled:
        dataset, spec, run = make_dataset(), make_reward_spec(), make_run()
        make_environment()
        addresses += [
            reverse("dataset-detail", args=[project.slug, dataset.pk]),
            reverse("dataset-progress", args=[project.slug, dataset.pk]),
            reverse("reward-detail", args=[project.slug, spec.pk]),
            reverse("reward-edit", args=[project.slug, spec.pk]),
            reverse("run-new", args=[project.slug]) + f"?from={run.pk}",
            reverse("run-yaml", args=[project.slug]) + f"?from={run.pk}",
        ]
    client = client_for(bob, headers={"accept-language": language})
    for address in addresses:
        assert client.get(address).status_code == 200, address
