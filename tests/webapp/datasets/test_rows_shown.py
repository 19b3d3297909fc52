"""Rows of a dataset as pages show them: reasoning, calls, and what is not learned."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from tests.working import at_once, done
from webapp.datasets import services
from webapp.datasets.selectors import preview_of
from webapp.people.teams.models import Project, User

CALL = {"id": "k", "name": "weather", "arguments": {"city": "Oslo", "days": None, "now": True}}
ROW = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "thinking": "Ask the <tool>.", "tool_calls": [CALL], "weight": 0},
        {"role": "tool", "content": "rain", "tool_call_id": "k", "weight": 0},
        {"role": "assistant", "content": "Rain."},
    ]
}


def test_a_row_shows_reasoning_calls_as_json_and_what_is_not_learned(
    project: Project, bob: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    file = SimpleUploadedFile("rows.jsonl", json.dumps(ROW).encode())
    dataset = services.dataset_create(project=project, user=bob, name="d", file=file, file_name="rows.jsonl")
    done(dataset)
    client = client_for(bob)
    for address in (
        reverse("dataset-detail", args=[project.slug, dataset.pk]),
        reverse("dataset-row", args=[project.slug, dataset.pk, 1]),
    ):
        page = client.get(address).content.decode()
        assert "Ask the &lt;tool&gt;." in page
        assert all(each in page for each in ("weather(", "city=&quot;Oslo&quot;", "days=null", "now=true"))
        assert page.count("· not learned") == 1


def test_messages_of_a_row_say_their_reasoning_and_whether_they_are_learned() -> None:
    shown = preview_of({"preview": [ROW]})[0]["messages"]
    assert [message["reasoning"] for message in shown] == ["", "Ask the <tool>.", "", ""]
    assert [message["is_learned"] for message in shown] == [True, False, True, True]
