"""A recorded rollout is played again: what is asked, what is compared, and where the session then is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.rewind import rebuild, record
from envs.wire import Message, Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig
from training.errors import EnvironmentFault
from training.rollout.protocols import open_session
from training.rollout.rewinding import Difference, Recording, Rewound, Taken, rewind

ASK = Message(role="user", content="What is 6 * 7?")
CALL = Message(
    role="assistant",
    content="",
    tool_calls=[ToolCall(id="call_0_0", name="calculator", arguments={"expression": "6*7"})],
)
BROKEN = Message(role="assistant", content="Let me see.")
LAST = Message(role="assistant", content="It is 42.")
RESET = ResetRequest(task={"x": 1}, seed=11, episode_id="e")


def tool(text: str, number: str = "call_0_0") -> Message:
    return Message(role="tool", content=text, tool_call_id=number, name="calculator")


TURNS = [Taken(CALL, [tool("42")]), Taken(BROKEN, [tool("no JSON")], "not JSON"), Taken(LAST, [])]
WHOLE = Recording(RESET, [], [ASK], TURNS, reward=1.0)
ANSWERS = [
    Observation(messages=[tool("42")]),
    Observation(messages=[tool("no JSON")]),
    Observation(done=True, reward=1.0),
]


class Session:
    """Answers what it was given."""

    latencies: list[float]
    failures = 0

    def __init__(self, *answers: Observation | Exception, first: Observation | None = None) -> None:
        self.first, self.answers = first or Observation(messages=[ASK]), list(answers)
        self.resets: list[ResetRequest] = []
        self.asked: list[StepRequest] = []
        self.closed = False

    async def reset(self, request: ResetRequest) -> Observation:
        self.resets.append(request)
        return self.first

    async def step(self, request: StepRequest) -> Observation:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


def play(session: Session, turns: int, recording: Recording = WHOLE, **more: Any) -> Rewound:
    return asyncio.run(rewind(session, recording, turns, **more))


def test_the_same_task_seed_and_turns_are_asked_again_the_unreadable_one_with_its_error() -> None:
    session = Session(*ANSWERS)
    found = play(session, 3)
    assert session.resets == [RESET] and not session.closed
    assert session.asked == [
        StepRequest(tool_calls=CALL.tool_calls or []),
        StepRequest(message="Let me see.", parse_error="not JSON"),
        StepRequest(message="It is 42."),
    ]
    assert (found.difference, found.turns, found.over, found.checked) == (None, 3, True, True)
    assert found.differing == []
    assert found.answers == [Observation(messages=[ASK]), *ANSWERS] and found.seconds > 0


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_it_stops_behind_the_turn_that_was_asked_for_and_stays_open(turns: int) -> None:
    session = Session(*ANSWERS)
    found = play(session, turns)
    assert (len(session.asked), found.turns, found.over, session.closed) == (turns, turns, False, False)
    assert found.difference is None


def test_the_first_answer_that_differs_is_reported_and_the_rest_is_taken_all_the_same() -> None:
    other = Observation(messages=[tool("no JSON, again")])
    session = Session(Observation(messages=[tool("43")]), other, ANSWERS[2])
    found = play(session, 3)
    assert found.difference == Difference(1, "messages", "42", "43") and found.turns == 3
    assert found.differing == [1, 2]  # the last one is as recorded


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ([], ("42", "")),
        ([tool("42"), Message(role="user", content="more")], ("", "more")),
        (
            [Message(role="user", content="42")],
            (
                '{"role":"tool","content":"42","tool_call_id":"call_0_0","name":"calculator"}',
                '{"role":"user","content":"42"}',
            ),
        ),
        (
            [tool("42", "call_9_9")],
            (
                '{"role":"tool","content":"42","tool_call_id":"call_0_0","name":"calculator"}',
                '{"role":"tool","content":"42","tool_call_id":"call_9_9","name":"calculator"}',
            ),
        ),
        (
            [tool("42").model_copy(update={"name": "other"})],
            (
                '{"role":"tool","content":"42","tool_call_id":"call_0_0","name":"calculator"}',
                '{"role":"tool","content":"42","tool_call_id":"call_0_0","name":"other"}',
            ),
        ),
    ],
)
def test_what_a_policy_would_see_otherwise_is_a_difference(answer: list[Message], texts: tuple[str, str]) -> None:
    found = play(Session(Observation(messages=answer)), 1)
    assert found.difference == Difference(1, "messages", *texts)


def test_the_opening_is_compared_with_the_rows_own_messages_before_it() -> None:
    own = Message(role="system", content="Be short.")
    recording = Recording(RESET, [own], [own, ASK], TURNS)
    assert play(Session(), 0, recording).difference is None
    found = play(Session(first=Observation(messages=[LAST])), 0, recording)
    assert found.difference == Difference(0, "messages", ASK.content, LAST.content)


def test_an_episode_that_ends_too_early_is_not_asked_further() -> None:
    session = Session(Observation(messages=[tool("42")], done=True))
    found = play(session, 3)
    assert found.difference == Difference(1, "ended", "no JSON", "") and found.turns == len(session.asked) == 1


@pytest.mark.parametrize(("reward", "now"), [(0.5, "0.5"), (None, "")])
def test_another_verdict_at_the_end_is_a_difference(reward: float | None, now: str) -> None:
    found = play(Session(*ANSWERS[:2], Observation(done=True, reward=reward)), 3)
    assert found.difference == Difference(3, "reward", "1", now)


def test_a_verdict_is_compared_at_the_end_alone_and_as_numbers() -> None:
    early = [answer.model_copy(update={"reward": 0.1}) for answer in ANSWERS[:2]]
    assert play(Session(*early), 2).difference is None
    last = Observation(done=True, reward=1.0 + 1e-12)
    assert play(Session(*early, last), 3).difference is None
    assert play(Session(*early, Observation(done=True)), 3).difference == Difference(3, "reward", "1", "0.1")


def test_a_server_without_episodes_is_asked_nothing_twice() -> None:
    session = Session(first=Observation(tools=[{"type": "function"}]))
    found = play(session, 2, stateless=True)
    assert not session.asked and not found.checked and found.difference is None
    assert [answer.messages for answer in found.answers[1:]] == [[tool("42")], [tool("no JSON")]]
    assert found.answers[0].tools == [{"type": "function"}]


def test_what_the_environment_refuses_is_raised() -> None:
    with pytest.raises(EnvironmentFault, match="gone"):
        play(Session(EnvironmentFault("gone")), 1)


def test_rollouts_of_a_real_server_are_rebuilt_and_a_forgotten_parse_error_is_found(
    tools_server: str, tmp_path: Any
) -> None:
    recorded = asyncio.run(record("tools", tools_server, 4, tmp_path))
    broken = 0
    for found in recorded.values():
        whole = asyncio.run(rebuild(tools_server, found, len(found.turns)))
        assert (whole.difference, whole.turns) == (None, len(found.turns))
        unread = next(at for at, taken in enumerate(found.turns) if taken.parse_error)
        turns = [taken._replace(parse_error=None) for taken in found.turns]
        other = asyncio.run(rebuild(tools_server, Recording(found.reset, [], found.first, turns), len(turns)))
        assert other.difference is not None and other.difference.turn == unread + 1
        broken += 1
    assert broken == 4


def test_a_continuation_begins_in_the_state_of_the_rollout(tools_server: str) -> None:
    """The reward is that of the calls before and after: without the recorded call it would be another one."""
    task = {
        "conversation": [{"role": "user", "content": "What is 17 * 23?"}],
        "answer": {"contains": ["391"], "tools": ["calculator"]},
        "language": "en",
    }
    call = ToolCall(id="call_0_0", name="calculator", arguments={"expression": "17 * 23"})
    message = Message(role="assistant", content="", tool_calls=[call])
    answered = Message(role="tool", content="391", tool_call_id="call_0_0", name="calculator")
    ask = Message(role="user", content="What is 17 * 23?")
    taken = Recording(ResetRequest(task=task, seed=3), [ask], [ask], [Taken(message, [answered])])

    async def end(turns: int) -> tuple[Difference | None, float | None]:
        session = await open_session(EnvironmentConfig(url=tools_server))
        found = await rewind(session, taken, turns)
        last = await session.step(StepRequest(message="It is 391."))
        await session.close()
        return found.difference, last.reward

    assert asyncio.run(end(1)) == (None, 1.0)
    difference, reward = asyncio.run(end(0))
    assert difference is None and reward is not None and reward < 1.0
