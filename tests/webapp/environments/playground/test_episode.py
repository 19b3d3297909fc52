"""Commands, starts and the episode that the server remembers, without a server: both sides of each limit."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from envs.wire import Message, Observation, StepRequest
from training.errors import EnvironmentFault, EnvironmentFull, EnvironmentUnreachable
from webapp.datasets.models import DatasetState
from webapp.environments.playground import play as play_module
from webapp.environments.playground.play import (
    Call,
    Empty,
    FromRow,
    Pasted,
    Play,
    Played,
    PlayRefused,
    Start,
    Step,
    command_of,
    start_of,
    start_of_row,
)
from webapp.people.teams.models import Project, User

USER, MODEL = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
STEP: dict[str, Any] = {"type": "step", "message": "", "tool_calls": []}
RESET: dict[str, Any] = {"type": "reset", "seed": 0, "source": {"kind": "empty"}}
CASE: dict[str, Any] = {"type": "save_case", "name": "n", "expected": {}, "total": None}
CALL = {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    ("base", "good", "bad"),
    [
        (STEP, {"tool_calls": [CALL] * 16}, {"tool_calls": [CALL] * 17}),
        (
            STEP,
            {"tool_calls": [{"name": "n" * 200, "arguments": {}}]},
            {"tool_calls": [{"name": "n" * 201, "arguments": {}}]},
        ),
        (STEP, {"tool_calls": [{"name": "n", "arguments": {}}]}, {"tool_calls": [{"name": "", "arguments": {}}]}),
        (STEP, {"message": "x"}, {"message": 3}),
        (RESET, {"seed": 0}, {"seed": -1}),
        (RESET, {"seed": 2**31 - 1}, {"seed": 2**31}),
        (RESET, {"seed": 3}, {"seed": "3"}),
        (RESET, {"source": {"kind": "task", "task": {}}}, {"source": {"kind": "nonsense"}}),
        (CASE, {"total": [0.0, 1.0]}, {"total": [0.0]}),
        (CASE, {"total": [0.0, 1.0]}, {"total": [0.0, 1.0, 2.0]}),
        (
            CASE,
            {"expected": {f"c{n}": [0.0, 1.0] for n in range(50)}},
            {"expected": {f"c{n}": [0.0, 1.0] for n in range(51)}},
        ),
        (CASE, {"name": "n" * 200}, {"name": "n" * 201}),
        ({"type": "ping"}, {}, {"more": 1}),
        ({"type": "save_row", "dataset": "d"}, {"dataset": "d" * 200}, {"dataset": "d" * 201}),
    ],
)
def test_a_command_is_taken_within_its_limits(base: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert command_of(json.dumps(base | good)) is not None
    assert command_of(json.dumps(base | bad)) is None


@pytest.mark.parametrize("row", [0, 1, 2**31 - 1, 2**31])
def test_a_row_is_counted_from_one(row: int) -> None:
    source = {"kind": "row", "dataset": str(uuid.uuid4()), "row": row}
    assert (command_of(json.dumps(RESET | {"source": source})) is not None) is (1 <= row < 2**31)


def test_a_frame_has_a_largest_length() -> None:
    short = json.dumps(STEP)
    assert command_of(json.dumps(STEP | {"message": "x" * (60_000 - len(short))})) is not None
    assert command_of(json.dumps(STEP | {"message": "x" * (60_001 - len(short))})) is None
    for text in (None, "", "no", "[]", "3", "[" * 50_000, '{"type":"ping"} '):
        assert (command_of(text) is not None) is (text == '{"type":"ping"} ')


# --- Starts -----------------------------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_a_start_is_a_row_of_a_ready_dataset_of_the_project(
    project: Project, charlie: User, make_dataset: Callable[..., Any]
) -> None:
    rows = [{"messages": [USER, MODEL, USER], "answer": "a"}, {"messages": [USER]}, {"messages": 3}]
    dataset = make_dataset(name="d", lines=rows)
    first = start_of(project, FromRow(kind="row", dataset=dataset.pk, row=1))
    assert ([message.content for message in first.messages], first.origin) == (["q"], "dataset:d@1#1")
    assert first.task["messages"] == [USER] and first.task["answer"] == "a", "the answer is not shown"
    assert [message.role for message in start_of_row(dataset, 2).messages] == ["user"]
    for number, words in ((0, "has rows 1 to 3"), (4, "has rows 1 to 3"), (3, "Row 3 cannot be read")):
        with pytest.raises(ValidationError, match=words):
            start_of_row(dataset, number)
    elsewhere = Project.objects.get(slug="elsewhere")
    unready = make_dataset(state=DatasetState.NEEDS_CHOICE)
    for where, pk in ((elsewhere, dataset.pk), (project, unready.pk), (project, uuid.uuid4())):
        with pytest.raises(ValidationError, match="gone or not ready"):
            start_of(where, FromRow(kind="row", dataset=pk, row=1))
    dataset.rows_path.unlink()
    with pytest.raises(ValidationError, match="Row 1 cannot be read"):
        start_of_row(dataset, 1)


def test_a_pasted_task_may_hold_a_conversation() -> None:
    nothing: Any = None
    assert start_of(nothing, Empty(kind="empty")) == Start({}, [], None, "")
    plain = {"goal": "find", "messages": "none"}
    assert start_of(nothing, Pasted(kind="task", task=plain)) == Start(plain, [], None, "")
    talk = start_of(nothing, Pasted(kind="task", task={"messages": [USER, MODEL]}))
    assert [message.content for message in talk.messages] == ["q"] and talk.task["messages"] == [USER]
    for task in ({"messages": [{"role": "wizard", "content": ""}]}, {"n": float("nan")}):
        with pytest.raises(ValidationError, match="The task cannot be used"):
            start_of(nothing, Pasted(kind="task", task=task))


# --- Episode ----------------------------------------------------------------------------------------------------------
def heard(text: str = "", **over: Any) -> Observation:
    messages = [Message(role="user", content=text)] if text else []
    return Observation.model_validate({"messages": [message.model_dump() for message in messages]} | over)


class Session:
    """A session that answers what a test says, in turn; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked, self.closed = list(answers), list[Any](), 0
        self.latencies, self.failures = [], []

    async def _next(self, request: Any) -> Observation:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def reset(self, request: Any) -> Observation:
        return await self._next(request)

    async def step(self, request: Any) -> Observation:
        return await self._next(request)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Play, Session]]:
    """``sit(*answers)``: an episode that has begun with the first of them."""

    def make(*answers: Any) -> tuple[Play, Session]:
        session = Session(*answers)

        async def connect(_reach: Any) -> Session:
            return session

        monkeypatch.setattr(play_module, "open_session", connect)
        play = Play(None, "tools")  # type: ignore[arg-type]
        async_to_sync(play.reset)(Start({"t": 1}, [Message(role="user", content="q")], None, "o"), 3, again=False)
        return play, session

    return make


def step(play: Play, text: str = "a", *calls: Call) -> Any:
    return async_to_sync(play.step)(Step(type="step", message=text, tool_calls=list(calls)))


def test_an_episode_ends_with_the_environments_word(sit: Callable[..., tuple[Play, Session]]) -> None:
    play, session = sit(heard(), heard("no", reward=0.5, reward_parts={"x": 1.0}), heard(done=True, reward=1.0))
    assert play.is_open and play.episode is not None
    said, added, _seconds = step(play, "first", Call(name="f", arguments={"a": 1}))
    assert [(call.id, call.name) for call in said.tool_calls or []] == [("call_0_0", "f")]
    assert [message.content for message in added] == ["no"] and play.is_open
    step(play, "second")
    episode = play.episode
    assert (episode.done, episode.reward, episode.parts, episode.turns) == (True, 1.0, {"x": 1.0}, 2)
    assert (play.is_open, session.closed, episode.scored_as().truncated) == (False, 1, False)
    with pytest.raises(PlayRefused) as refused:
        step(play)
    assert refused.value.code == "no_episode"


def test_an_episode_that_ends_at_once_holds_no_slot(sit: Callable[..., tuple[Play, Session]]) -> None:
    play, session = sit(heard(done=True))
    assert (play.is_open, session.closed) == (False, 1) and play.episode is not None and play.episode.done


@pytest.mark.parametrize(("fault", "stays"), [(EnvironmentFault("no"), True), (EnvironmentUnreachable("away"), False)])
def test_a_turn_that_is_refused_may_be_played_again(
    fault: Exception, stays: bool, sit: Callable[..., tuple[Play, Session]]
) -> None:
    play, session = sit(heard(), fault)
    with pytest.raises(type(fault)):
        step(play)
    assert (play.is_open, session.closed) == (stays, int(not stays))
    assert play.episode is not None and play.episode.turns == 0


def test_an_episode_has_so_many_turns_of_a_person(
    sit: Callable[..., tuple[Play, Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (play_module.MAX_TURNS, play_module.MAX_TRANSCRIPT_BYTES) == (200, 8 << 20)
    monkeypatch.setattr(play_module, "MAX_TURNS", 2)
    play, session = sit(*[heard()] * 4)
    assert play.episode is not None
    step(play)
    play.episode.replayed = 1
    step(play)
    step(play)
    with pytest.raises(PlayRefused, match="ends after 2 turns"):
        step(play)
    assert session.closed == 1 and play.episode.policy_turns == 2


def test_a_conversation_has_a_largest_size(
    sit: Callable[..., tuple[Play, Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play, session = sit(heard(), heard(), heard())
    assert play.episode is not None
    before = play.episode.size
    step(play)
    monkeypatch.setattr(play_module, "MAX_TRANSCRIPT_BYTES", 2 * play.episode.size - before - 1)
    with pytest.raises(PlayRefused, match="grew beyond 8 MB"):
        step(play)
    assert session.closed == 1


def test_a_verdict_is_asked_for_where_none_came(sit: Callable[..., tuple[Play, Session]]) -> None:
    play, session = sit(heard(), heard(), heard(reward=0.25))
    step(play)
    async_to_sync(play.give_up)()
    assert play.episode is not None and (play.episode.reward, session.closed) == (0.25, 1)
    assert isinstance(session.asked[-1], StepRequest) and session.asked[-1].final
    play, session = sit(heard(), heard(reward=0.5))
    step(play)
    async_to_sync(play.give_up)()
    assert len(session.asked) == 2 and session.closed == 1, "it has one already"


@pytest.mark.parametrize(("again", "tries"), [(True, 2), (False, 1)])
def test_a_full_environment_is_asked_twice_after_the_tab_left_it(
    again: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def connect(_reach: Any) -> Session:
        asked.append(1)
        raise EnvironmentFull("full")

    async def no_wait(_seconds: float) -> None:
        """No one waits here."""

    monkeypatch.setattr(play_module, "open_session", connect)
    monkeypatch.setattr(asyncio, "sleep", no_wait)
    play = Play(None, "tools")  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFull):
        async_to_sync(play.reset)(Start({}, [], None, ""), 0, again=again)
    assert len(asked) == tries and not play.is_open and play.episode is None


def test_errors_of_reading_and_tools_are_remembered() -> None:
    played = Played("id", "tools", {}, 0)
    played.begin([Message(role="user", content="q")], [{"name": "row"}], heard())
    assert (played.tools, played.known_tools, played.prompt_length) == ([{"name": "row"}], [{"name": "row"}], 1)
    said = Message(role="assistant", content="a")
    for answer, error in ((heard(), None), (heard(), "torn"), (heard(info={"parse_error": "x"}), None)):
        played.answered(said, answer, error)
    assert (played.parse_errors, played.turns, played.policy_turns) == (2, 3, 3)
    played.answered(said, heard(tools=[{"name": "new"}], reward_parts={"a": 1.0}))
    played.answered(said, heard(reward_parts={"b": 2.0}))
    assert (played.tools, played.known_tools) == ([{"name": "row"}], [{"name": "new"}])
    assert (played.parts, played.reward, played.scored_as().truncated) == ({"a": 1.0, "b": 2.0}, None, True)
