"""One answer against the real tools environment, with a speaker whose turns are written here."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from envs.tools.tasks import draw_task
from envs.wire import Message
from training.chat.serve import Answering
from training.chat.speakers import SpeakerReply
from training.chat.wire import Ask, Ended, Line, Place, Said, Text
from training.config import EnvironmentConfig, JobConfig
from training.dialects import choose_dialect
from training.errors import EnvironmentUnreachable

SUM = '<tool_call>{"name": "calculator", "arguments": {"expression": "2 + 3"}}</tool_call>'


class Scripted:
    """Says its turns one after another, each in two pieces; remembers what it was shown."""

    def __init__(self, *turns: str, cut: bool = False) -> None:
        self.turns, self.cut = list(turns), cut
        self.seen: list[tuple[list[Message], Any, Any]] = []

    def reader(self, config: JobConfig) -> Any:
        return choose_dialect(config)

    async def speak(
        self, messages: Any, tools: Any, settings: Any, parse: Any, prefix: str, on_text: Any
    ) -> SpeakerReply:
        self.seen.append((list(messages), tools, settings))
        text = self.turns.pop(0)
        on_text(text[:3])
        on_text(text[3:])
        return SpeakerReply(parse(text, prefix), len(text), 0.01, self.cut)


def _ask(text: str, *before: Message, place: Place | None = None, **more: Any) -> Ask:
    return Ask(id="a", messages=[*before, Message(role="user", content=text)], place=place, **more)


def _answer(ask: Ask, speaker: Scripted) -> tuple[Ended, list[Line]]:
    lines: list[Line] = []
    return asyncio.run(Answering(ask, speaker, lines.append).run()), lines


@pytest.fixture
def place(tools_server: str) -> Place:
    config = EnvironmentConfig(name="tools", url=tools_server)
    return Place(config=config, allow=[urlsplit(tools_server).netloc])


def _messages_of(lines: list[Line]) -> list[Message]:
    return [line.message for line in lines if isinstance(line, Said)]


def test_a_plain_answer_is_one_turn_in_pieces() -> None:
    speaker = Scripted("Hello you.")
    ended, lines = _answer(_ask("Hi"), speaker)
    assert [line.text for line in lines if isinstance(line, Text)] == ["Hel", "lo you."]
    assert [(message.role, message.content) for message in _messages_of(lines)] == [("assistant", "Hello you.")]
    assert (ended.why, ended.tokens, ended.reward) == ("done", 10, None)
    assert ended.first_s is not None and speaker.seen[0][1] is None


def test_calls_are_answered_by_the_environment_until_the_person_is_spoken_to(place: Place) -> None:
    speaker = Scripted(SUM, "It is 5.")
    ended, lines = _answer(_ask("What is 2 + 3?", place=place), speaker)
    roles = [(message.role, message.name, message.content) for message in _messages_of(lines)]
    assert roles == [("assistant", None, ""), ("tool", "calculator", "5"), ("assistant", None, "It is 5.")]
    assert {tool["function"]["name"] for tool in speaker.seen[0][1]} >= {"calculator"}
    assert ended.why == "done"


def test_the_environment_gives_its_verdict_on_a_task_that_it_knows(place: Place) -> None:
    task = draw_task(3, difficulty="starter").row
    question = task["conversation"][0]["content"]
    known = place.model_copy(update={"task": task})
    ended, _lines = _answer(_ask(question, place=known), Scripted("no idea"))
    assert ended.reward is not None and ended.reward < 0.5


def test_without_words_the_environment_begins(place: Place) -> None:
    ask = Ask(id="a", messages=[], place=place.model_copy(update={"seed": 4}))
    _ended, lines = _answer(ask, Scripted("Well."))
    first = _messages_of(lines)[0]
    assert first.role == "user" and first.content == draw_task(4).question


def test_earlier_calls_are_played_again_and_a_different_answer_is_reported(place: Place) -> None:
    _ended, lines = _answer(_ask("What is 2 + 3?", place=place), Scripted(SUM, "It is 5."))
    before = [Message(role="user", content="What is 2 + 3?"), *_messages_of(lines)]
    again, lines = _answer(_ask("Sure?", *before, place=place), Scripted("Yes."))
    assert (again.differs, [m.content for m in _messages_of(lines)]) == (False, ["Yes."])
    before[2] = before[2].model_copy(update={"content": "6"})
    again, _lines = _answer(_ask("Sure?", *before, place=place), Scripted("Yes."))
    assert again.differs is True


def test_turns_and_tokens_have_limits(place: Place) -> None:
    ended, lines = _answer(_ask("2 + 3?", place=place, max_turns=2), Scripted(SUM, SUM, "never said"))
    assert (ended.why, len(_messages_of(lines))) == ("turns", 4)
    ended, _lines = _answer(_ask("2 + 3?", place=place), Scripted(SUM, cut=True))
    assert ended.why == "length"


def test_a_call_that_cannot_be_read_is_answered_by_the_environment(place: Place) -> None:
    ended, lines = _answer(_ask("2 + 3?", place=place), Scripted("<tool_call>{oops</tool_call>", "Sorry."))
    messages = _messages_of(lines)
    assert messages[1].role == "tool" and "JSON" in messages[1].content
    assert ended.why == "done"


def test_a_private_address_that_was_not_allowed_is_not_reached(place: Place) -> None:
    with pytest.raises(EnvironmentUnreachable):
        _answer(_ask("Hi", place=place.model_copy(update={"allow": []})), Scripted("never"))


def test_each_turn_has_a_seed_of_its_own_and_the_same_one_again(place: Place) -> None:
    seeds = []
    for _again in range(2):
        speaker = Scripted(SUM, "It is 5.")
        _answer(_ask("2 + 3?", place=place, seed=9), speaker)
        seeds.append([settings.seed for _messages, _tools, settings in speaker.seen])
    assert seeds[0] == seeds[1] and seeds[0][0] != seeds[0][1]
