"""``tiltyard chat``: one question, one answer, whatever comes between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiltyard_client.api import Tiltyard

from tests.client.conftest import Tool, answered, refused
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.people.teams.models import Project
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)
HELLO = [{"role": "assistant", "content": "Good day."}]


@pytest.fixture
def tiny(project: Project) -> RegisteredModel:
    """A model that is not looked into before an answer is set for it."""
    from django.conf import settings

    (Path(settings.MODELS_DIR) / "chat-tiny").mkdir(parents=True, exist_ok=True)
    return RegisteredModel.objects.create(project=project, name="tiny", kind=ModelKind.FOLDER, source="chat-tiny")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``answer(**fields)``: what becomes of the answer between the first look and the second."""
    order = Tiltyard.call

    def say(**fields: Any) -> None:
        looks = []

        def call(site: Tiltyard, method: str, path: str, **options: Any) -> Any:
            found = order(site, method, path, **options)
            if method == "GET" and path.startswith("/chats/") and not looks:
                looks.append(found)
                Answer.objects.filter(state__in=Answer.OPEN).update(**{"state": AnswerState.DONE, "seq": 99} | fields)
            return found

        monkeypatch.setattr(Tiltyard, "call", call)

    return say


def test_an_answer_is_printed(tool: Tool, tiny: RegisteredModel, answer: Callable[..., None]) -> None:
    answer(messages=HELLO, ending={"why": "stop"})
    words = ("--temperature", "0", "--max-tokens", "5", "--seed", "7", "--system", "Be brief.")
    result = tool("chat", "tiny", "Hello", *words)
    assert (result.exit_code, result.stdout) == (0, "Good day.\n"), result.output
    chat = Chat.objects.get()
    assert chat.contestants[0]["source"] == "model:tiny" and Turn.objects.get().text == "Hello"
    expected = {"temperature": 0, "max_tokens": 5, "seed": 7, "system": "Be brief."}
    assert {name: chat.parameters[name] for name in expected} == expected


def test_a_question_is_read_from_the_input_and_can_be_forgotten(
    tool: Tool, tiny: RegisteredModel, answer: Callable[..., None]
) -> None:
    answer(messages=HELLO)
    found = answered(tool("chat", "model:tiny", "-", "--forget", "--json", input="From a pipe"))
    assert found["turns"][0]["text"] == "From a pipe" and found["answers"][0]["messages"] == HELLO
    assert not Chat.objects.exists()


def test_calls_and_what_the_tools_said_are_shown(
    tool: Tool, tiny: RegisteredModel, answer: Callable[..., None]
) -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "add", "arguments": {"a": 2}}]}
    answer(messages=[called, {"role": "tool", "content": "2"}, *HELLO], ending={"why": "length", "reward": 1.0})
    result = tool("chat", "tiny", "Add")
    assert result.stdout == "> add {'a': 2}\n< 2\nGood day.\n"
    assert "--max-tokens raises it" in result.stderr and "reward 1" in result.stderr


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"state": "failed", "error": {"code": "model", "message": "The model cannot be loaded."}},
            "cannot be loaded.",
        ),
        ({"state": "cut", "partial": "Good"}, "cut off"),
        ({"state": "stopped"}, "--wait-s"),
    ],
)
def test_no_whole_answer_is_exit_code_5(
    tool: Tool, tiny: RegisteredModel, answer: Callable[..., None], fields: dict[str, Any], sentence: str
) -> None:
    answer(**fields)
    result = tool("chat", "tiny", "Hello")
    assert result.exit_code == 5 and sentence in result.stderr
    assert result.stdout == (f"{fields['partial']}\n" if "partial" in fields else "")
    assert Chat.objects.exists()


def test_who_stops_waiting_stops_the_answer(tool: Tool, tiny: RegisteredModel) -> None:
    result = tool("chat", "tiny", "Hello", "--wait-s", "1")
    assert result.exit_code == 5 and "--wait-s" in result.stderr
    assert Answer.objects.get().state == AnswerState.STOPPED


def test_ctrl_c_stops_the_answer(tool: Tool, tiny: RegisteredModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tiltyard_client.api.time.sleep", interrupted)
    result = tool("chat", "tiny", "Hello")
    assert result.exit_code == 130 and Answer.objects.get().state == AnswerState.STOPPED


def test_what_cannot_be_asked_leaves_nothing(tool: Tool, tiny: RegisteredModel) -> None:
    refused(tool("chat", "nobody", "Hello"), "nobody")
    refused(tool("chat", "tiny", "Hello", "--environment", "nowhere"), "not in this project")
    refused(tool("chat", "tiny", "  "), "Write a message.")
    assert tool("chat", "tiny").exit_code == 2 and not Chat.objects.exists()
