"""A chat by script: what the page does, through the same addresses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.chat.models import Answer, AnswerState, Chat
from webapp.people.teams.models import User
from webapp.runs.registry.models import RegisteredModel

Clients = Callable[[User | None], Client]


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.chat.services.hint", lambda _pool: None)


def _post(client: Client, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    response = client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json")
    return response.status_code, response.json()


def test_a_chat_from_its_start_to_its_end(client_for: Clients, bob: User, tiny: RegisteredModel) -> None:
    client = client_for(bob)
    status, chat = _post(client, "/projects/joust/chats", contestants=[{"source": "model:tiny"}])
    assert (status, chat["contestants"]) == (201, [{"title": "tiny", "source": "model:tiny"}])
    address = f"/chats/{chat['id']}"
    status, turn = _post(client, f"{address}/messages", text="Hello", parameters={"seed": 3})
    assert (status, turn["by"], turn["answers"][0]["state"]) == (202, "bob", "waiting")
    status, refused = _post(client, f"{address}/messages", text="And?")
    assert (status, refused["code"]) == (409, "conflict")
    assert _post(client, f"{address}/stop") == (200, {"stopped": 1})
    assert _post(client, f"{address}/stop") == (200, {"stopped": 0})
    status, refused = _post(client, f"{address}/save", kind="row", name="talks")
    assert (status, refused["message"]) == (422, "Nothing was answered yet.")
    Answer.objects.update(messages=[{"role": "assistant", "content": "Hi."}], state=AnswerState.DONE)
    status, again = _post(client, f"{address}/again", answer=turn["answers"][0]["id"], parameters={"temperature": 0})
    assert (status, again["number"], again["parameters"]["temperature"]) == (202, 1, 0)
    whole = client.get(f"/api/v1{address}").json()
    assert whole["waits"][again["id"]]["why"] == "no_worker"
    assert [answer["number"] for answer in whole["answers"]] == [0, 1]
    assert client.delete(f"/api/v1{address}").json() == {"deleted": "Hello"}
    assert not Chat.objects.exists()


def test_what_is_wrong_is_named_by_its_field(client_for: Clients, alice: User, make_chat: Callable[..., Chat]) -> None:
    client, chat = client_for(alice), make_chat()
    for body, path in (
        ({"text": "x", "parameters": {"temperature": -1}}, "temperature"),
        ({"text": "x", "parameters": {"max_tokens": 0}}, "max_tokens"),
        ({"text": "x" * 200_001}, "text"),
        ({"text": " "}, "text"),
    ):
        status, answer = _post(client, f"/chats/{chat.pk}/messages", **body)
        assert (status, [item["path"] for item in answer["detail"]]) == (422, [path]), answer
    assert not Answer.objects.exists()


def test_viewers_read_and_strangers_find_nothing(
    client_for: Clients, rita: User, charlie: User, make_chat: Callable[..., Chat]
) -> None:
    chat = make_chat()
    assert client_for(rita).get(f"/api/v1/chats/{chat.pk}").json()["contestants"][0]["title"] == "tiny"
    assert _post(client_for(rita), f"/chats/{chat.pk}/messages", text="x")[0] == 403
    assert client_for(charlie).get(f"/api/v1/chats/{chat.pk}").status_code == 404
    assert _post(client_for(charlie), f"/chats/{chat.pk}/messages", text="x")[0] == 404
    page = client_for(rita).get(f"/p/joust/chats/{chat.pk}/").content.decode()
    assert "composer" not in page and "your role can only read" in page
    assert client_for(rita).get("/p/joust/chats/new/").status_code == 403
