"""What the parts of a suite name is there when it is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from webapp.evaluation.suites.models import Suite, SuiteVersion
from webapp.evaluation.suites.services import suite_change, suite_create

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("groups", "option", "sentence"),
    [
        ({"data": {"train": "dataset:gone"}}, "data.train", "there is no dataset “gone” in this project."),
        ({"data": {"train": "dataset:tasks@99"}}, "data.train", "there is no dataset “tasks@99” in this project."),
        ({"environment": {"name": "environment:gone"}}, "environment.name", "there is no environment “gone”"),
        ({"rewards": {"spec": "reward:gone"}}, "rewards.spec", "there is no reward spec “gone” in this project."),
    ],
)
def test_a_part_that_cannot_be_played_is_refused_by_name(
    project: Any,
    part: Callable[..., dict[str, Any]],
    alice: Any,
    client_for: Any,
    groups: Any,
    option: str,
    sentence: str,
) -> None:
    """A suite of data that is not there was saved, and failed when it was first played."""
    parts = [part("easy"), part("hard", **groups)]
    body = {"name": "exam", "parts": parts}
    answer = client_for(alice).post(f"/api/v1/projects/{project.slug}/suites", body, content_type="application/json")
    assert answer.status_code == 422 and answer.json()["detail"][0]["path"] == f"parts.1.config.{option}"
    assert f"hard: {sentence}" in answer.json()["message"] and not Suite.objects.exists()
    made = suite_create(project=project, user=alice, name="exam", parts=parts[:1])
    with pytest.raises(ValidationError):
        suite_change(suite=made.suite, user=alice, parts=parts)
    assert SuiteVersion.objects.count() == 1
    assert suite_change(suite=made.suite, user=alice, parts=parts[:1])[1] is False


def test_another_project_s_dataset_is_not_there(
    project: Any, part: Callable[..., dict[str, Any]], alice: Any, make_dataset: Any, charlie: Any
) -> None:
    elsewhere = make_dataset(name="theirs", project=charlie.teams.get().projects.get())
    with pytest.raises(ValidationError, match="there is no dataset “theirs"):
        suite_create(
            project=project, user=alice, name="exam", parts=[part("easy", data={"train": elsewhere.reference})]
        )
