"""Preference pairs of a journal: of each group the best against the worst, as they were asked and answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.training.helpers import TOOLS, job_config
from training.__main__ import main
from training.data.learned import pair_of
from training.data.reader import load_rows
from training.errors import ConfigError, DataError
from training.exports.pairs import require_pairs, write_pairs
from training.journal import Event, GroupScored, Journal, RolloutFinished, RolloutStarted, TurnAdded


def rollout(
    name: str, reward: float | None, text: str = "", *, unread: int = 0, asked: str = "Say red."
) -> list[Event]:
    """One call, its answer and a sentence."""
    text = text or f"{name} says it."
    call = ToolCall(id="c", name="echo", arguments={"text": text})
    turns = [
        [Message(role="user", content=asked)],
        [Message(role="assistant", tool_calls=[call])],
        [Message(role="tool", content="red", tool_call_id="c", name="echo")],
        [Message(role="assistant", content=text)],
    ]
    status = "excluded" if reward is None else "completed"
    return [
        RolloutStarted(rollout=name, step=1, group=0, index=0),
        *(TurnAdded(rollout=name, turn=number, messages=messages) for number, messages in enumerate(turns)),
        RolloutFinished(rollout=name, status=status, reward=reward, parse_errors=unread),  # type: ignore[call-arg, arg-type]
    ]


def scored(*names: str, step: int = 1, tools: list[dict[str, Any]] | None = None, digest: str = "t") -> GroupScored:
    values: dict[str, Any] = {"reward_mean": None, "reward_std": None, "zero_variance": False}
    nothing: list[float | None] = [None] * len(names)
    return GroupScored(
        step=step, group=0, rollouts=list(names), advantages=nothing, tools=tools, tools_digest=digest, **values
    )


def journal(folder: Path, events: list[Event]) -> Path:
    file = Journal(folder)
    for event in events:
        file.write(event)
    file.close()
    return folder / "journal.jsonl"


def made(path: Path, min_gap: float = 0.5, *others: Path) -> tuple[Any, list[dict[str, Any]]]:
    output = path.parent / "pairs.jsonl"
    result = write_pairs([path, *others], output, min_gap)
    return result, [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def test_the_best_is_paired_with_the_worst_with_prompt_tools_and_turns(tmp_path: Path) -> None:
    events = [*rollout("a", 0.4), *rollout("b", 1.0), *rollout("c", 0.1), *rollout("d", None)]
    path = journal(tmp_path, [*events, scored("a", "b", "c", "d", tools=TOOLS)])
    result, rows = made(path)
    assert (result.pairs, result.groups, result.unread) == (1, 1, 0)
    row = rows[0]
    assert (row["rollouts"], row["rewards"], row["step"]) == (["b", "c"], [1.0, 0.1], 1)
    assert row["messages"] == [{"role": "user", "content": "Say red."}] and row["tools"] == TOOLS
    assert [message["role"] for message in row["chosen"]] == ["assistant", "tool", "assistant"]
    pair = pair_of(load_rows(tmp_path / "pairs.jsonl")[0])
    assert pair is not None and pair.chosen[-1].content == "b says it." and pair.rejected[-1].content == "c says it."
    assert pair.chosen[0].tool_calls is not None and pair.chosen[0].tool_calls[0].arguments == {"text": "b says it."}


def test_tools_are_recorded_once_and_known_in_every_group_of_the_attempt(tmp_path: Path) -> None:
    first = [*rollout("a", 0.0), *rollout("b", 1.0), scored("a", "b", tools=TOOLS)]
    second = [*rollout("c", 0.0), *rollout("d", 1.0), scored("c", "d", step=2)]
    third = [*rollout("e", 0.0), *rollout("f", 1.0), scored("e", "f", step=3, digest="")]
    _result, rows = made(journal(tmp_path, [*first, *second, *third]))
    assert [row.get("tools") for row in rows] == [TOOLS, TOOLS, None]


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ([("a", 0.5, {}), ("b", 0.9, {})], "too near"),
        ([("a", 0.5, {}), ("b", None, {})], "one is excluded"),
        ([("a", 0.0, {"unread": 1}), ("b", 1.0, {})], "its text is not known"),
        ([("a", 0.0, {"text": "x"}), ("b", 1.0, {"text": "x"})], "the same answer"),
        ([("a", 0.0, {"asked": "Say blue."}), ("b", 1.0, {})], "asked differently"),
    ],
)
def test_what_makes_no_pair(tmp_path: Path, group: list[tuple[str, float | None, dict[str, Any]]], why: str) -> None:
    events = [event for name, reward, over in group for event in rollout(name, reward, **over)]
    path = journal(tmp_path, [*events, scored("a", "b")])
    with pytest.raises(DataError, match="differ so much"):
        write_pairs([path], tmp_path / "out.jsonl", 0.5)
    assert not (tmp_path / "out.jsonl").exists(), why


def test_texts_that_no_dataset_holds_are_passed_over(tmp_path: Path) -> None:
    """A model that knows nothing writes NULs; one of them made the whole dataset unreadable."""
    first = [*rollout("a", 0.0, "a\x00b"), *rollout("b", 1.0), scored("a", "b", tools=TOOLS)]
    second = [*rollout("c", 0.0), *rollout("d", 1.0), scored("c", "d", step=2)]
    result, rows = made(journal(tmp_path, [*first, *second]))
    assert (result.pairs, result.unread) == (1, 1) and rows[0]["rollouts"] == ["d", "c"]
    assert len(load_rows(tmp_path / "pairs.jsonl")) == 1


def test_a_rollout_that_began_again_has_only_its_last_turns(tmp_path: Path) -> None:
    lost = rollout("a", 1.0, "lost")[:3]
    events = [*lost, *rollout("a", 1.0, "again"), *rollout("b", 0.0), scored("a", "b")]
    _result, rows = made(journal(tmp_path, events))
    assert rows[0]["chosen"][-1]["content"] == "again" and len(rows[0]["chosen"]) == 3


def test_a_step_that_two_attempts_played_alike_gives_one_pair(tmp_path: Path) -> None:
    events = [*rollout("a", 0.0), *rollout("b", 1.0), scored("a", "b", tools=TOOLS)]
    other = [*rollout("a", 0.0), *rollout("b", 1.0, "other"), scored("a", "b", tools=TOOLS)]
    paths = [journal(tmp_path / str(number), each) for number, each in enumerate([events, events, other])]
    result, rows = made(paths[0], 0.5, *paths[1:])
    assert (result.pairs, result.groups) == (2, 3) and [row["chosen"][-1]["content"] for row in rows][1] == "other"


def test_what_grows_too_large_is_not_kept(tmp_path: Path) -> None:
    path = journal(tmp_path, [*rollout("a", 0.0), *rollout("b", 1.0), scored("a", "b")])
    with pytest.raises(DataError, match="larger"):
        write_pairs([path], tmp_path / "out.jsonl", 0.5, limit_bytes=100)
    assert not (tmp_path / "out.jsonl").exists()


def test_runs_whose_transcripts_are_not_what_was_written_are_refused() -> None:
    require_pairs(job_config())
    require_pairs(job_config(kind="evaluate"))
    with pytest.raises(ConfigError, match="bfcl"):
        require_pairs(job_config(rollout={"dialect": "bfcl"}))
    with pytest.raises(ConfigError, match="no rollouts"):
        require_pairs(job_config(kind="sft"))


def test_the_command_writes_the_file_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal(tmp_path, [*rollout("a", 0.0), *rollout("b", 1.0), scored("a", "b")])
    output = tmp_path / "out.jsonl"
    assert main(["pairs", str(tmp_path), "--output", str(output)]) == 0
    assert "1 pairs of 1 groups" in capsys.readouterr().out and len(output.read_text().splitlines()) == 1
    assert main(["pairs", str(tmp_path), "--output", str(output)]) == 2  # it is there already
    assert main(["pairs", str(tmp_path / "gone"), "--output", str(tmp_path / "new.jsonl")]) == 2
