"""One name is found with one request, and all rows are read a page at a time."""

from __future__ import annotations

from typing import Any

import pytest
from tiltyard_client.api import Tiltyard

from tests.client.conftest import Tool, answered
from webapp.people.teams.models import Project
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lists that the command asks for, one entry a request."""
    asked: list[str] = []
    sent = Tiltyard._sent

    def noted(self: Tiltyard, method: str, path: str, **options: Any) -> Any:
        if method == "GET" and path.startswith("/projects/"):
            asked.append(path)
        return sent(self, method, path, **options)

    monkeypatch.setattr(Tiltyard, "_sent", noted)
    return asked


def test_one_name_is_found_with_one_request(tool: Tool, project: Project, make_run: Any, lists: list[str]) -> None:
    for number in range(250):
        RegisteredModel.objects.create(project=project, name=f"m{number}", kind=ModelKind.STARTER)
    assert answered(tool("model", "show", "m0", "--json"))["name"] == "m0"
    assert lists == ["/projects/joust/models"]
    run = make_run(name="night", state="succeeded")
    make_run(name="night-2")
    assert answered(tool("run", "show", "night", "--json"))["id"] == str(run.pk)
    assert lists[1:] == ["/projects/joust/runs"]
    assert len(answered(tool("model", "list", "--json"))) == 250  # two pages
    assert lists[2:] == ["/projects/joust/models"] * 2


def test_an_empty_name_is_no_name(tool: Tool, project: Project) -> None:
    RegisteredModel.objects.create(project=project, name="small", kind=ModelKind.STARTER)
    result = tool("model", "show", "")
    assert result.exit_code == 1 and "There is no model '' in joust." in result.stderr
