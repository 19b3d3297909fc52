"""One rollout, token by token, with an engine, a template and a session that are lists: facts by value."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from envs.wire import Message, Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig, RolloutConfig
from training.dialects import ParsedTurn
from training.errors import (
    DataError,
    EnvironmentFault,
    EnvironmentProtocolError,
    EnvironmentTimeout,
    EnvironmentUnreachable,
)
from training.policy.engine import Sample
from training.rollout import trajectory as trajectories
from training.rollout.trajectory import PlayedTurn, Player, Task, Trajectory

EOS = 9
PROMPT, SUFFIX = [1, 2, 3], [5, 5]
TOOL = {"type": "function", "function": {"name": "look"}}
ASK = Message(role="user", content="How much?")


class Words:
    """A template: three tokens of prompt, two for what the environment adds."""

    eos_id = EOS

    def __init__(self) -> None:
        self.prompts: list[Any] = []

    def prompt_ids(self, messages: list[Message], tools: Any) -> list[int]:
        self.prompts.append(([message.content for message in messages], tools))
        return list(PROMPT)

    def suffix_ids(self, added: list[Message]) -> list[int]:
        assert [message.role for message in added] == ["tool"]
        return list(SUFFIX)

    def decode(self, ids: list[int]) -> str:
        return "-".join(map(str, ids))

    def ends(self, token: int) -> bool:
        return token == EOS


class Engine:
    """Samples what it was given, turn by turn."""

    def __init__(self, *turns: Sample | Exception) -> None:
        self.turns = list(turns) or [Sample([7, EOS], [-0.5, -0.25], True)] * 9
        self.asked: list[tuple[list[int], int, int, str]] = []
        self.released: list[str] = []

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        self.asked.append((list(prompt_ids), max_tokens, seed, episode))
        turn = self.turns[len(self.asked) - 1]
        if isinstance(turn, Exception):
            raise turn
        return turn

    def release(self, episode: str) -> None:
        self.released.append(episode)


class Session:
    """Answers what it was given, and keeps what it was asked."""

    def __init__(self, first: Any, *answers: Any) -> None:
        self.first, self.answers = first, list(answers)
        self.asked: list[StepRequest] = []
        self.reset_with: ResetRequest | None = None
        self.latencies, self.failures, self.closed = [0.5], 1, 0

    async def reset(self, request: ResetRequest) -> Observation:
        self.reset_with = request
        if isinstance(self.first, BaseException):
            raise self.first
        return cast(Observation, self.first)

    async def step(self, request: StepRequest) -> Observation:
        self.asked.append(request)
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return cast(Observation, answer)

    async def close(self) -> None:
        self.closed += 1


def _parse(text: str, prefix: str, tools: Any = None, *, in_thought: bool = False) -> ParsedTurn:
    error = "broken call" if text.startswith("8") else None
    if text.startswith("8-8"):  # of a call that is broken nothing is left as text
        return ParsedTurn("", [], error)
    return ParsedTurn(text, [ToolCall(id=f"{prefix}0", name="look", arguments={})], error)


TASK = Task(
    row=4, messages=[ASK], tools=[TOOL], task={"x": 1}, episode_seed=11, sample_seed=100, episode_id="a1-s1-g0-i0"
)
Seen = list[tuple[list[str], int]]


def play(
    *sessions: Session | Exception,
    engine: Engine | None = None,
    task: Task = TASK,
    rollout: Any = None,
    environment: Any = None,
    wrote_of: list[str | None] | None = None,
) -> tuple[Trajectory, Seen, Engine, Words]:
    waiting, engine, template, seen = list(sessions), engine or Engine(), Words(), cast(Seen, [])
    messages: list[Message] = []
    errors: list[str | None] = []

    async def open_session() -> Any:
        session = waiting.pop(0)
        if isinstance(session, Exception):
            raise session
        return session

    player = Player(
        engine=cast(Any, engine),
        template=cast(Any, template),
        parse=_parse,
        rollout=RolloutConfig(max_turn_tokens=16, **rollout or {}),
        environment=EnvironmentConfig(**environment or {}),
        open_session=open_session if sessions else None,
    )

    def on_turn(turn: PlayedTurn) -> None:
        assert 0 <= turn.seconds < 60
        seen.append(([message.role for message in turn.messages], turn.tokens))
        messages.extend(turn.messages)
        if turn.messages[0].role == "assistant":
            errors.append(turn.parse_error)
            if wrote_of is not None:
                wrote_of.append(turn.wrote)

    found = asyncio.run(player.play(task, on_turn))
    assert messages == found.messages[: len(messages)]  # as they happened, each once
    asked = [
        turn.parse_error for each in sessions if isinstance(each, Session) for turn in each.asked if not turn.final
    ]
    assert errors[: len(asked)] == asked
    return found, seen, engine, template


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Waits between tries take no time; the ranges that they were drawn from are kept."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.0

    monkeypatch.setattr(trajectories.random, "uniform", uniform)
    return drawn


def observed(text: str = "ok", **over: Any) -> Observation:
    return Observation(messages=[Message(role="tool", content=text)], **over)


def test_each_turn_has_a_seed_of_its_own() -> None:
    """The same seed for every turn passed all tests."""
    session = Session(Observation(), observed(), observed(), observed(done=True, reward=1.0))
    found, _seen, engine, _template = play(session)
    assert [seed for _prompt, _room, seed, _episode in engine.asked] == [100, 101, 102]
    assert {episode for *_rest, episode in engine.asked} == {"a1-s1-g0-i0"} and engine.released == ["a1-s1-g0-i0"]
    assert (found.turns, found.status) == (3, "completed")


def test_tokens_mask_and_logprobs_of_two_turns() -> None:
    session = Session(
        Observation(reward=0.0, reward_parts={"a": 1.0}),
        observed(reward_parts={"b": 2.0}),
        observed("bye", done=True, reward=0.75, reward_parts={"a": 3.0}),
    )
    found, seen, engine, template = play(session)
    assert found.prompt_ids == PROMPT and template.prompts == [(["How much?"], [TOOL])]
    assert found.completion_ids == [7, EOS, *SUFFIX, 7, EOS]
    assert found.mask == [1, 1, 0, 0, 1, 1] and found.sampled_tokens == 4
    assert found.logprobs == [-0.5, -0.25, 0.0, 0.0, -0.5, -0.25]
    assert [asked[0] for asked in engine.asked] == [PROMPT, [*PROMPT, 7, EOS, *SUFFIX]]
    assert [asked[1] for asked in engine.asked] == [16, 16]
    assert [message.role for message in found.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert seen == [(["user"], 0), (["assistant"], 2), (["tool"], 0), (["assistant"], 2), (["tool"], 0)]
    assert (found.prompt_length, found.tools, found.turns, found.parse_errors) == (1, [TOOL], 2, 0)
    assert (found.env_reward, found.env_parts) == (0.75, {"a": 3.0, "b": 2.0})
    assert (found.status, found.error, found.latencies, found.env_errors) == ("completed", None, [0.5], 1)
    assert session.closed == 1 and 0 <= found.seconds < 60
    assert session.reset_with == ResetRequest(task={"x": 1}, seed=11, episode_id="a1-s1-g0-i0")
    calls = [request.tool_calls[0].id for request in session.asked]
    assert calls == [call.id for message in found.messages for call in message.tool_calls or []]
    assert calls == ["call_0_0", "call_1_0"] and session.asked[0].message == "7-9" and not session.asked[0].final


def test_an_episode_that_is_over_at_its_reset_has_no_turn() -> None:
    found, seen, engine, _template = play(Session(Observation(done=True, reward=0.5)))
    assert (found.turns, found.env_reward, engine.asked, seen) == (0, 0.5, [], [(["user"], 0)])


def test_what_the_environment_opens_with_is_the_prompt() -> None:
    session = Session(
        Observation(messages=[ASK, Message(role="user", content="2?")], tools=[]), observed(done=True, reward=1.0)
    )
    found, _seen, _engine, template = play(session)
    assert template.prompts == [(["How much?", "2?"], [])] and found.prompt_length == 2


def test_without_an_environment_one_turn_is_all() -> None:
    found, seen, engine, _template = play()
    assert (found.status, found.turns, found.env_reward, found.latencies) == ("completed", 1, None, [])
    assert seen == [(["user"], 0), (["assistant"], 2)] and len(engine.asked) == 1


@pytest.mark.parametrize("cut", [Sample([7, 7], [-0.5, -0.5], False), Sample([7, 7], [-0.5, -0.5], True)])
@pytest.mark.parametrize("alone", [True, False])
def test_a_turn_without_its_end_is_cut_off(cut: Sample, alone: bool) -> None:
    """By the engine's word, or because its last token is not the one that ends a turn."""
    session = Session(Observation(), Observation(reward=0.25, done=True))
    found, _seen, _engine, _template = play(*([] if alone else [session]), engine=Engine(cut))
    assert (found.status, found.turns, found.mask) == ("truncated", 1, [1, 1])
    if not alone:
        assert [request.final for request in session.asked] == [True] and found.env_reward == 0.25


def test_an_unfinished_sample_that_ends_in_the_end_token_is_cut_off_too() -> None:
    assert play(engine=Engine(Sample([7, EOS], [-0.5, -0.5], False)))[0].status == "truncated"


def test_the_last_token_of_a_turn_ends_it() -> None:
    turns = [Sample([6, 7, EOS], [-0.5] * 3, True), Sample([EOS, 7, 8, 6], [-0.5] * 4, True)]
    session = Session(Observation(), observed(), Observation(reward=0.25, done=True))
    found, _seen, _engine, _template = play(session, engine=Engine(*turns))
    assert (found.status, found.turns, found.env_reward) == ("truncated", 2, 0.25)
    assert [message.content for message in found.messages] == ["How much?", "6-7-9", "ok", "9-7-8-6"]


def test_the_limit_of_turns_ends_in_a_verdict() -> None:
    session = Session(Observation(), observed(), observed(), Observation(reward=0.5))
    found, _seen, _engine, _template = play(session, rollout={"max_turns": 2})
    assert (found.status, found.turns, found.env_reward) == ("truncated", 2, 0.5)
    assert [request.final for request in session.asked] == [False, False, True]
    assert found.completion_ids == [7, EOS, *SUFFIX, 7, EOS] and found.messages[-1].role == "tool"


@pytest.mark.parametrize(("budget", "turns", "room"), [(16, 4, 4), (17, 4, 5), (15, 4, 3), (12, 3, 4)])
def test_the_budget_of_tokens_is_never_passed(budget: int, turns: int, room: int) -> None:
    """Each turn takes 2 tokens, each answer 2: before turn n there are 4 (n − 1), and at least one must be left."""
    session = Session(Observation(), *[observed() for _ in range(turns)], Observation(reward=0.5))
    found, _seen, engine, _template = play(session, rollout={"max_completion_tokens": budget})
    assert (found.status, found.turns, found.env_reward) == ("truncated", turns, 0.5)
    assert engine.asked[-1][1] == room and len(found.completion_ids) == 4 * turns - 2


@pytest.mark.parametrize(
    ("turn", "info", "errors"),
    [([7, EOS], {}, 0), ([8, EOS], {}, 1), ([7, EOS], {"parse_error": True}, 1), ([8, EOS], {"parse_error": True}, 1)],
)
def test_a_parse_error_counts_once(turn: list[int], info: dict[str, Any], errors: int) -> None:
    session = Session(Observation(), observed(done=True, reward=0.0, info=info))
    found, *_rest = play(session, engine=Engine(Sample(turn, [-1.0, -1.0], True)))
    assert found.parse_errors == errors
    assert session.asked[0].parse_error == ("broken call" if turn[0] == 8 else None)


def test_what_was_written_is_kept_where_a_broken_call_left_nothing_of_it() -> None:
    session = Session(Observation(), observed(), observed(), observed(done=True, reward=0.0))
    turns = [Sample([*ids, EOS], [-1.0] * (len(ids) + 1), True) for ids in ((8, 8, 4), (8, 4), (7, 4))]
    wrote: list[str | None] = []
    found, *_rest = play(session, engine=Engine(*turns), wrote_of=wrote)
    assert wrote == [f"8-8-4-{EOS}", None, None], "the second message holds all of it, the third is no broken call"
    assert next(message.content for message in found.messages if message.role == "assistant") == ""
    assert next(turn.message for turn in session.asked) == "", "the environment gets what it always got"


def test_parse_errors_of_both_readers_add_up() -> None:
    session = Session(Observation(), observed(), observed(info={"parse_error": True}), observed(done=True, reward=0.0))
    turns = [Sample([first, EOS], [-1.0, -1.0], True) for first in (8, 7, 7)]
    assert play(session, engine=Engine(*turns))[0].parse_errors == 2


def test_a_session_that_cannot_be_opened_costs_no_more_than_its_error() -> None:
    error = EnvironmentUnreachable("nobody there")
    found, seen, engine, _template = play(error)
    assert (found.status, found.error, found.latencies, found.env_errors) == ("excluded", error, [], 1)
    assert seen == [] and engine.released == ["a1-s1-g0-i0"]


def test_a_reset_that_fails_is_tried_again_with_longer_waits(_no_wait: list[tuple[float, float]]) -> None:
    broken = [Session(EnvironmentTimeout("late")), Session(EnvironmentFault("no"))]
    broken += [Session(EnvironmentFault("no")) for _ in range(5)]
    good = Session(Observation(done=True, reward=1.0))
    found, *_rest = play(*broken, good, environment={"attempts": 8})
    assert (found.status, found.env_reward) == ("completed", 1.0)
    assert _no_wait == [(0, 0.25), (0, 0.5), (0, 1.0), (0, 2.0), (0, 4.0), (0, 5.0), (0, 5.0)]
    assert found.env_errors == 7 + 8 and found.latencies == [0.5] * 8  # each try, and each session's own failure
    assert [session.closed for session in (*broken, good)] == [1] * 8


@pytest.mark.parametrize("error", [EnvironmentProtocolError("odd"), EnvironmentFault("no")])
def test_a_reset_is_given_up_with_its_error(error: Any) -> None:
    sessions = [Session(error) for _ in range(2)]
    found, seen, engine, _template = play(*sessions, environment={"attempts": 2})
    tried = 2 if isinstance(error, EnvironmentFault) else 1
    assert (found.status, found.error) == ("excluded", error)
    assert [session.closed for session in sessions] == [1] * tried + [0] * (2 - tried)
    assert found.env_errors == 2 * tried and seen == [] and engine.asked == []


def test_a_session_that_fails_in_mid_episode_excludes_the_rollout() -> None:
    session = Session(Observation(), observed(), EnvironmentUnreachable("gone"))
    found, _seen, engine, _template = play(session)
    assert (found.status, found.turns, session.closed) == ("excluded", 2, 1)
    assert found.error is not None and found.error.code == "environment_unreachable" and found.env_errors == 2
    assert engine.released == ["a1-s1-g0-i0"]


def test_defects_of_ours_cost_one_rollout() -> None:
    found, *_rest = play(engine=Engine(RuntimeError("CUDA out of memory")))
    assert found.error is not None and found.error.code == "policy_fault" and found.env_errors == 0
    assert found.error.message == "RuntimeError while sampling: CUDA out of memory"
    session = Session(Observation(), KeyError("x" * 400))
    found, *_rest = play(session)
    assert found.error is not None and found.error.message.startswith("KeyError in the rollout loop: 'xxx")
    assert len(found.error.message) == len("KeyError in the rollout loop: ") + 300 and session.closed == 1


def test_a_prompt_beyond_its_limit_is_the_rows_fault() -> None:
    limit = {"max_prompt_tokens": 8}
    assert play(rollout=limit)[0].status == "completed"
    long = Words.prompt_ids
    try:
        Words.prompt_ids = lambda self, messages, tools: [1] * 9  # type: ignore[method-assign]
        found = play(rollout=limit)[0]
        Words.prompt_ids = lambda self, messages, tools: [1] * 8  # type: ignore[method-assign]
        assert play(rollout=limit)[0].status == "completed"
    finally:
        Words.prompt_ids = long  # type: ignore[method-assign]
    assert isinstance(found.error, DataError)
    assert found.error.message == "The prompt has 9 tokens, more than the limit of 8."
    assert found.error.info.hint == "Raise rollout.max_prompt_tokens or shorten the row."


def test_a_prompt_that_cannot_be_rendered_is_the_rows_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> list[int]:
        raise KeyError("tools")

    monkeypatch.setattr(Words, "prompt_ids", fails)
    error = play()[0].error
    assert isinstance(error, DataError) and error.message == "KeyError while rendering the prompt: 'tools'"


def test_a_row_without_messages_needs_an_environment_that_speaks() -> None:
    silent = Task(**{**TASK.__dict__, "messages": [], "tools": None})
    found, *_rest = play(Session(Observation()), task=silent)
    assert found.error is not None and found.error.message == "The row has no messages and the environment gave none."


def test_the_episode_as_rewards_see_it() -> None:
    row = {"answer": 5}
    found = Trajectory(
        messages=[ASK], mask=[1, 0, 1], prompt_length=1, env_reward=0.5, env_parts={"a": 1.0}, parse_errors=2
    )
    episode = found.episode(row)
    assert (episode.messages, episode.prompt_length, episode.row) == ([ASK], 1, row)
    assert (episode.env_reward, episode.env_parts, episode.parse_errors) == (0.5, {"a": 1.0}, 2)
    assert (episode.truncated, episode.tokens) == (False, 2)
    found.status = "truncated"
    assert found.episode(row).truncated
    found.exclude(DataError("no"))
    assert (found.status, found.error and found.error.message) == ("excluded", "no")
