"""A rollout that continues from a recorded one, token by token: its past is replayed, counted, and never sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envs.wire import Message, Observation, ResetRequest, ToolCall
from tests.training.rollout import test_player as player
from tests.training.rollout.test_player import ASK, EOS, TASK, Engine, Session, play
from training.errors import CannotContinue
from training.policy.engine import Sample
from training.rollout.rewinding import Past, Recording, Taken, read_past, write_past

SAID = Message(role="assistant", content="first", tool_calls=[ToolCall(id="call_0_0", name="look", arguments={"a": 1})])
HEARD = Message(role="tool", content="seen", tool_call_id="call_0_0", name="look")
RESET = ResetRequest(task={"x": 1}, seed=77, episode_id="recorded")
BROKEN = Message(role="assistant", content="no call")


def past(*turns: Taken, tokens: int = 4) -> Past:
    return Past(4, Recording(RESET, [ASK], [ASK], list(turns)), [tokens] * len(turns))


ONE = past(Taken(SAID, [HEARD]))
FIRST, SEEN = Observation(messages=[ASK]), Observation(messages=[HEARD], reward=0.25, reward_parts={"near": 0.5})
DONE = Observation(done=True, reward=1.0)


class Longer(player.Words):
    """Three tokens for the opening, four more for each later message."""

    def prompt_ids(self, messages: list[Message], tools: object) -> list[int]:
        super().prompt_ids(messages, tools)
        return [1] * (3 + 4 * (len(messages) - 1))


@pytest.fixture(autouse=True)
def _longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "Words", Longer)


def test_the_recorded_turns_are_the_prompt_and_the_next_turn_is_sampled() -> None:
    session = Session(FIRST, SEEN, DONE)
    found, seen, engine, _words = play(session, task=replace(TASK, past=ONE))
    assert found.status == "completed" and found.error is None
    assert [message.content for message in found.messages] == ["How much?", "first", "seen", "7-9"]
    assert found.prompt_ids == [1] * 11 and found.past_ids == 8 and found.completion_ids == [7, EOS]
    assert (found.prompt_length, found.turns, found.past_tokens, found.sampled_tokens) == (1, 2, 4, 2)
    assert [ids for ids, *_rest in engine.asked] == [[1] * 11] and engine.asked[0][2] == 101  # the second turn's seed
    assert found.messages[-1].tool_calls is not None and found.messages[-1].tool_calls[0].id == "call_1_0"
    assert [(request.message, len(request.tool_calls)) for request in session.asked] == [("first", 1), ("7-9", 1)]
    assert found.env_reward == 1.0 and found.env_parts == {"near": 0.5}
    assert seen == [(["user"], 0), (["assistant"], 4), (["tool"], 0), (["assistant"], 2)]
    episode = found.episode({})
    assert (episode.tokens, episode.prompt_length, len(episode.messages)) == (6, 1, 4)


def test_a_turn_that_could_not_be_read_is_shown_as_it_was() -> None:
    session = Session(FIRST, SEEN, DONE)
    found, *_rest = play(session, task=replace(TASK, past=past(Taken(BROKEN, [HEARD], "not JSON"))))
    assert session.asked[0].parse_error == "not JSON" and found.parse_errors == 1


def test_a_continuation_reads_a_broken_call_as_it_was_written() -> None:
    written: list[str | None] = []
    broken = Taken(SAID, [HEARD], "not JSON", "first <tool_call>{")
    on = replace(TASK, past=past(broken))
    found, _seen, _engine, words = play(Session(FIRST, SEEN, DONE), task=on, wrote_of=written)
    assert words.prompts[-1][0] == ["How much?", "first <tool_call>{", "seen"], "what the contestant is given"
    assert [message.content for message in found.messages[:3]] == ["How much?", "first", "seen"], "what rewards see"
    assert written == ["first <tool_call>{", None] and broken.written.tool_calls is None


def test_what_the_environment_paid_before_stays_where_it_says_no_more() -> None:
    found, *_rest = play(Session(FIRST, SEEN, Observation(done=True)), task=replace(TASK, past=ONE))
    assert found.env_reward == 0.25


def test_limits_of_turns_and_tokens_are_the_whole_episodes() -> None:
    on = replace(TASK, past=ONE)
    limits = {"max_turns": 2, "max_completion_tokens": 20}
    found, _seen, engine, _words = play(Session(FIRST, SEEN, SEEN), task=on, rollout=limits)
    assert found.status == "truncated" and len(engine.asked) == 1
    assert engine.asked[0][1] == 12  # 20, of which the past took 8
    spent = {"max_turns": 9, "max_completion_tokens": 12}
    found, _seen, engine, _words = play(Session(FIRST, SEEN, SEEN), task=on, rollout=spent)
    assert found.status == "truncated" and [most for _ids, most, *_rest in engine.asked] == [4]


@pytest.mark.parametrize(
    ("answers", "limit", "words"),
    [
        ((FIRST, DONE), 64, "over at this turn"),
        ((FIRST, SEEN), 8, "8 tokens"),
    ],
)
def test_where_there_is_nothing_to_continue_from_it_is_excluded(
    answers: tuple[Observation, ...], limit: int, words: str
) -> None:
    rollout = {"max_turns": 9, "max_completion_tokens": limit}
    found, _seen, engine, _words = play(Session(*answers), task=replace(TASK, past=ONE), rollout=rollout)
    assert found.status == "excluded" and isinstance(found.error, CannotContinue) and words in str(found.error)
    assert (engine.asked == [] and found.env_reward != 1.0) or found.status == "excluded"


def test_a_server_that_keeps_no_episode_is_not_asked_again() -> None:
    session = Session(FIRST, DONE)
    found, *_rest = play(session, task=replace(TASK, past=ONE), environment={"protocol": "virtual"})
    assert [request.message for request in session.asked] == ["7-9"] and found.turns == 2


def test_its_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "past.json"
    whole = past(Taken(SAID, [HEARD]), Taken(BROKEN, [], "not JSON", "no call <"))
    write_past(file, whole)
    assert read_past(file) == whole and whole.seed == 77
    assert isinstance(read_past(file).recording.turns[1], Taken)
    file.write_text("{}")
    with pytest.raises(CannotContinue, match="cannot be read"):
        read_past(file)
    with pytest.raises(CannotContinue, match="cannot be read"):
        read_past(tmp_path / "none.json")


def test_a_sample_that_was_cut_ends_the_branch() -> None:
    session = Session(FIRST, SEEN, Observation(reward=0.0))
    cut = Engine(Sample([7, 8], [-0.5, -0.25], False))
    found, *_rest = play(session, engine=cut, task=replace(TASK, past=ONE))
    assert found.status == "truncated" and found.env_reward == 0.25  # the environment had given its verdict before
