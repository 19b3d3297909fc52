"""Marks, tags, notes and sections of the card: what is kept, what is refused, and what the audit says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from webapp.people.notifications.models import Event
from webapp.people.notifications.words import path_of, words_of
from webapp.people.teams.models import AuditEntry, Project, Team, User
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair(project: Project) -> tuple[RegisteredModel, RegisteredModel]:
    """Two models of the project, and one in production elsewhere."""
    other = Project.objects.create(team=Team.objects.create(name="Other"), name="Elsewhere", slug="elsewhere")
    RegisteredModel.objects.create(project=other, name="theirs", kind=ModelKind.HUB, source="a/b", mark="production")
    made = [
        RegisteredModel.objects.create(project=project, name=name, kind=ModelKind.HUB, source=f"a/{name}")
        for name in ("old", "new")
    ]
    return made[0], made[1]


def _marks() -> dict[str, str]:
    return dict(RegisteredModel.objects.values_list("name", "mark"))


def _rows() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("username", "action", "subject"))


def _mark(client: Client, model: RegisteredModel, mark: str) -> Any:
    return client.post(f"/p/joust/models/{model.pk}/mark/", {"mark": mark})


def test_one_model_is_in_production_and_the_former_loses_the_mark(pair: Any, client_for: Any, bob: User) -> None:
    old, new = pair
    client = client_for(bob)
    assert _mark(client, old, "production").status_code == 302
    _mark(client, old, "production")  # again: nothing changes, nothing is written
    assert _rows() == [("bob", "model_marked", "old: production")]
    _mark(client, new, "production")
    assert _marks() == {"old": "", "new": "production", "theirs": "production"}
    assert _rows()[1:] == [("bob", "model_unmarked", "old: production"), ("bob", "model_marked", "new: production")]
    old.refresh_from_db()
    assert old.marked_at is None
    with pytest.raises(IntegrityError), transaction.atomic():
        RegisteredModel.objects.filter(pk=old.pk).update(mark="production")


def test_a_model_in_production_is_notified_once_for_each_time(pair: Any, client_for: Any, bob: User) -> None:
    old, new = pair
    client = client_for(bob)
    for model, mark in ((old, "candidate"), (old, "production"), (old, "production"), (new, "production")):
        _mark(client, model, mark)
    events = list(Event.objects.order_by("created_at"))
    assert [(event.kind, event.subject) for event in events] == [
        ("model_production", "old"),
        ("model_production", "new"),
    ]
    assert words_of(events[0]) == ("Model “old” is in production", ["Marked by bob."])
    assert path_of(events[0]) == f"/p/joust/models/{old.pk}/"


def test_candidates_are_as_many_as_the_team_likes(pair: Any, client_for: Any, bob: User) -> None:
    client = client_for(bob)
    for model in pair:
        _mark(client, model, "candidate")
    assert _marks() == {"old": "candidate", "new": "candidate", "theirs": "production"}
    _mark(client, pair[0], "")
    assert _marks()["old"] == "" and _rows()[-1] == ("bob", "model_unmarked", "old: candidate")


def test_an_unknown_mark_changes_nothing(pair: Any, client_for: Any, bob: User) -> None:
    client = client_for(bob)
    page = client.post(f"/p/joust/models/{pair[0].pk}/mark/", {"mark": "best"}, follow=True).content.decode()
    assert "Choose one of the marks." in page and _marks()["old"] == "" and not AuditEntry.objects.exists()
    answer = client.patch(f"/api/v1/models/{pair[0].pk}", json.dumps({"mark": "best"}), content_type="application/json")
    assert (answer.status_code, answer.json()["detail"][0]["path"]) == (422, "mark")


def test_the_mark_is_in_the_list(pair: Any, client_for: Any, bob: User, rita: User) -> None:
    _mark(client_for(bob), pair[1], "production")
    page = client_for(rita).get("/p/joust/models/").content.decode()
    row = page[page.index(f"/p/joust/models/{pair[1].pk}/") :]
    assert ">production</span>" in row[:300]


def _about(client: Client, model: RegisteredModel, **form: str) -> Any:
    return client.post(f"/p/joust/models/{model.pk}/about/", {"tags": "", "notes": ""} | form)


def test_tags_and_notes_are_kept_as_written(pair: Any, client_for: Any, bob: User) -> None:
    model, client = pair[0], client_for(bob)
    notes = "Keeps <b>calling</b>\r\nthe calculator & more"
    assert _about(client, model, tags="tool-use, 0.6b  工具,Tool-Use", notes=notes).status_code == 302
    model.refresh_from_db()
    assert model.tags == ["tool-use", "0.6b", "工具"]
    assert model.notes == "Keeps <b>calling</b>\nthe calculator & more"
    page = client.get(f"/p/joust/models/{model.pk}/").content.decode()
    assert "&lt;b&gt;calling&lt;/b&gt;" in page and "<b>calling" not in page
    assert _rows() == [("bob", "model_described", "old")]
    _about(client, model, tags="tool-use 0.6b 工具", notes=notes)
    assert len(_rows()) == 1


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"tags": "a b c d e f g h i"}, "A model has at most 8 tags."),
        ({"tags": "x" * 25}, "use at most 24 letters"),
        ({"tags": "<script>"}, "use at most 24 letters"),
        ({"notes": "n" * 4001}, "That is 4001 characters; at most 4000 are kept."),
    ],
)
def test_what_is_too_much_is_reported_at_its_field(
    pair: Any, client_for: Any, bob: User, form: dict[str, str], sentence: str
) -> None:
    answer = _about(client_for(bob), pair[0], **form)
    page = answer.content.decode()
    assert answer.status_code == 422 and sentence in page
    assert f'id="id_{next(iter(form))}_error"' in page
    pair[0].refresh_from_db()
    assert (pair[0].tags, pair[0].notes) == ([], "") and not AuditEntry.objects.exists()
    field, value = next(iter(form.items()))
    assert value.replace("<", "&lt;").replace(">", "&gt;") in page, "what was typed is still there"
    body = {field: value.split() if field == "tags" else value}
    answer = client_for(bob).patch(f"/api/v1/models/{pair[0].pk}", json.dumps(body), content_type="application/json")
    assert answer.status_code == 422 and answer.json()["detail"][0]["path"] == field


def test_the_form_opens_in_place_for_editors_alone(pair: Any, client_for: Any, bob: User, rita: User) -> None:
    address = f"/p/joust/models/{pair[0].pk}/"
    assert 'name="tags"' in client_for(bob).get(address, {"edit": "about"}).content.decode()
    assert 'name="licence"' in client_for(bob).get(address, {"edit": "card"}).content.decode()
    for edit in ("about", "card"):
        assert "<textarea" not in client_for(rita).get(address, {"edit": edit}).content.decode()
    assert _about(client_for(rita), pair[0], tags="x").status_code == 403


def test_over_the_api_what_is_not_sent_stays(pair: Any, client_for: Any, bob: User, rita: User) -> None:
    address = f"/api/v1/models/{pair[0].pk}"

    def patch(body: dict[str, Any], user: User = bob) -> Any:
        return client_for(user).patch(address, json.dumps(body), content_type="application/json")

    found = patch({"tags": ["fast"], "notes": "keep", "mark": "candidate", "card": {"licence": "MIT"}}).json()
    assert [found[key] for key in ("tags", "notes", "mark", "card")] == [
        ["fast"],
        "keep",
        "candidate",
        {"licence": "MIT"},
    ]
    found = patch({"card": {"limitations": "none known"}}).json()
    assert found["card"] == {"licence": "MIT", "limitations": "none known"}
    assert (found["tags"], found["mark"]) == (["fast"], "candidate")
    assert patch({"card": {"licence": ""}, "mark": ""}).json()["card"] == {"limitations": "none known"}
    assert patch({"card": {"price": "1"}}).status_code == 422 and patch({"colour": "red"}).status_code == 422
    assert patch({"notes": "x"}, rita).status_code == 403
    found = patch({"notes": "y", "mark": "best"})
    assert found.status_code == 422
    pair[0].refresh_from_db()
    assert pair[0].notes == "keep", "all or nothing"
