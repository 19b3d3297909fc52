"""Of several versions under one name, lists show the newest, and how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.common.ids import latest_versions
from webapp.datasets.models import Dataset
from webapp.people.teams.models import Project


@pytest.mark.django_db
def test_the_newest_version_of_each_name_counts_those_of_its_project(project: Project, make_dataset: Any) -> None:
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    for name, version, of in (("a", 2, project), ("a", 1, project), ("b", 1, project), ("a", 9, elsewhere)):
        make_dataset(name=name, version=version, project=of)
    found = {of.slug: latest_versions(Dataset.objects.filter(project=of), of) for of in (project, elsewhere)}
    assert {(row.name, row.version, row.versions) for row in found["joust"]} == {("a", 2, 2), ("b", 1, 1)}
    assert [(row.name, row.version, row.versions) for row in found["elsewhere"]] == [("a", 9, 1)]
