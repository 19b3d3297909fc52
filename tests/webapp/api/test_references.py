"""A dataset that a call names is one of the project of its address, of that name and version."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from webapp.api.objects import _dataset_named
from webapp.people.teams.models import Project


@pytest.mark.django_db
def test_another_dataset_is_meant_by_its_name_and_version(project: Project, make_dataset: Any) -> None:
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    first, second = (make_dataset(name="a", version=version) for version in (1, 2))
    other = make_dataset(name="b", version=1)
    make_dataset(name="theirs", version=1, project=elsewhere)
    named = [_dataset_named(other, reference) for reference in ("dataset:a@1", "dataset:a@2", "dataset:b@1")]
    assert named == [first, second, other]
    for reference in ("dataset:a@3", "dataset:c@1", "dataset:theirs@1", "dataset:a", "dataset:a@x", "a", ""):
        with pytest.raises(ValidationError, match="There is no dataset"):
            _dataset_named(other, reference)
