"""Rollouts as environments record them: NeMo Gym's, ART's trajectories, and verifiers' traces.

Each row is a rollout, or in ART's older files a group of them. Most name no step: they are those of step 1 then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs.wire import Message, ToolCall
from training.chat_reply import text_of
from training.imports.base import BadRow, Notes, Reader, Sampled, known, number_of
from training.imports.rollouts import (
    FIRST,
    GROUP_KEYS,
    STEP_KEYS,
    Place,
    call_of,
    expected_in,
    expected_of,
    first_row,
    group_key,
    looking,
    messages_of,
    parts_of,
    reading,
    row_step,
    shown_text,
)
from training.words import _, ngettext, sentence

# Items of OpenAI's Responses API as chat messages: calls, their results and reasoning are apart from messages there.
#
# Calls in a row are one turn of the model, with the message and the reasoning before them.


class _Talk:
    """A conversation in the making."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open = False
        """Whether the last message is a turn of the model that may continue."""
        self._thought = ""
        self.names: dict[str, str] = {}
        """The tools of the calls, by the ids of those."""

    def said(self, text: str) -> None:
        """A text of the model."""
        if self._open and not self.messages[-1].tool_calls:
            last = self.messages[-1]
            last.content = "\n".join(part for part in (last.content, text) if part)
            return
        self._turn(text)

    def called(self, call: ToolCall) -> None:
        """A call of the model."""
        if not self._open:
            self._turn("")
        self.messages[-1].tool_calls = [*(self.messages[-1].tool_calls or []), call]
        self.names[call.id] = call.name

    def thought(self, text: str) -> None:
        """Reasoning of the turn that follows."""
        self._open = False
        self._thought = "\n".join(part for part in (self._thought, text) if part)

    def heard(self, message: Message) -> None:
        """Add a message of another party."""
        self.messages.append(message)
        self._open = False

    def _turn(self, text: str) -> None:
        self.messages.append(Message(role="assistant", content=text, reasoning=self._thought or None))
        self._open, self._thought = True, ""


def conversation(items: Any) -> list[Message]:
    """The messages of a list of items, or of a text. Raises ``BadRow``."""
    if isinstance(items, str):
        return [Message(role="user", content=items)]
    if not isinstance(items, list):
        raise BadRow(_("it holds neither a text nor a list of messages"))
    talk = _Talk()
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise BadRow(sentence(_("message {number} has no role that is known"), number=number))
        _take(talk, item, number)
    return talk.messages


def _take(talk: _Talk, item: dict[str, Any], number: int) -> None:
    kind = str(item.get("type") or "message")
    if kind == "reasoning":
        talk.thought(text_of(item.get("content")) or text_of(item.get("summary")))
    elif kind == "function_call":
        talk.called(call_of(item, str(item.get("call_id") or f"call_{number}")))
    elif kind == "function_call_output":
        called = str(item.get("call_id") or "")
        name = talk.names.get(called)
        talk.heard(Message(role="tool", content=shown_text(item.get("output")), tool_call_id=called, name=name))
    elif kind == "message" and item.get("role") == "assistant":
        talk.said(shown_text(item.get("content")))
    elif kind == "message":
        talk.heard(messages_of([item], "user")[0])
    else:  # a search, a file: shown by its kind
        talk.said(f"[{kind[:40]}]")


_BRANCHES = ngettext(
    "{n} trace has several branches: the last one is shown.", "{n} traces have several branches: the last one is shown."
)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_key(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _nemo_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    asked = _object(row.get("responses_create_params")).get("input")
    yield row_step(row, notes, default=FIRST), group_key(row, _text_key(asked))


def _nemo(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A rollout of NeMo Gym: what was asked of the Responses API, and all that came of it."""
    asked, answer = _object(row.get("responses_create_params")), _object(row.get("response"))
    begun = conversation(asked.get("input"))
    if isinstance(asked.get("instructions"), str):
        begun.insert(0, Message(role="system", content=asked["instructions"]))
    items = answer.get("output")
    if isinstance(items, list) and items and isinstance(items[-1], list):  # one list a step, each with all before it
        items = items[-1]
    messages = [*begun, *conversation(items)]
    ((step, key),) = _nemo_places(row, notes)
    taken = {"responses_create_params", "response", "reward", "id", *STEP_KEYS, *GROUP_KEYS} | expected_in(row)
    taken |= {name for name in row if name.startswith("_ng_")}
    yield Sampled(
        step=step,
        key=key,
        messages=messages,
        prompt=len(begun) or _asked(messages),
        reward=known(number_of(row.get("reward"))),
        parts=parts_of(row, taken, notes),
        expected=expected_of(row),
    )


def _trajectories(row: dict[str, Any]) -> list[dict[str, Any]]:
    listed = row.get("trajectories")
    return [_object(each) for each in listed] if isinstance(listed, list) else [row]


def _trajectory_messages(row: dict[str, Any]) -> list[Any]:
    """The messages of a trajectory; a choice holds one."""
    listed = row.get("messages_and_choices", row.get("messages"))
    if not isinstance(listed, list):
        raise BadRow(_("it holds neither a text nor a list of messages"))
    return [item["message"] if isinstance(item, dict) and "message" in item else item for item in listed]


def _asked(messages: list[Any]) -> int:
    """How many messages come before the first of the model."""
    roles = [item.role if isinstance(item, Message) else _object(item).get("role") for item in messages]
    return roles.index("assistant") if "assistant" in roles else len(roles)


def _art_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    step, grouped = row_step(row, notes, default=FIRST), "trajectories" in row
    for each in _trajectories(row):
        messages = _trajectory_messages(each)
        prompt = _text_key(messages[: _asked(messages)])
        named = {name: _object(each.get("metadata")).get(name, each.get(name)) for name in GROUP_KEYS}
        yield step, group_key({"uid": f"line {_text_key(row)}"} if grouped else named, prompt)


def _art(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A trajectory of ART, or a group of them: messages and a reward, numbers next to it as metrics."""
    for each, (step, key) in zip(_trajectories(row), _art_places(row, notes), strict=True):
        raw = _trajectory_messages(each)
        messages = messages_of(raw, "assistant")
        yield Sampled(
            step=step,
            key=key,
            messages=messages,
            prompt=_asked(raw),
            reward=known(number_of(each.get("reward"))),
            parts=parts_of(_object(each.get("metrics")), set(), notes),
            expected=expected_of(each) or expected_of(_object(each.get("metadata"))),
        )


def _trace_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    run, info, task = _object(row.get("run")), _object(row.get("info")), _object(row.get("task"))
    step = row_step({"step": run.get("step", info.get("step", row.get("step")))}, notes, default=FIRST)
    named = info.get("group_id") or task.get("key") or task.get("hash")
    prompt = [_object(node).get("message") for node in row.get("nodes") or [] if not _object(node).get("sampled")]
    yield step, group_key({"uid": named}, _text_key(task.get("data") or prompt))


def _trace(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A trace of verifiers: a graph of messages, of which the last branch is shown, and named rewards with weights."""
    nodes = [_object(node) for node in row.get("nodes") or []]
    path = _last_branch(nodes)
    if len({*range(len(nodes))} - {node.get("parent") for node in nodes}) > 1:
        notes.count(_BRANCHES)
    first = next((at for at, node in enumerate(path) if node.get("sampled")), len(path))
    scores = {name: _score(value) for name, value in _object(row.get("rewards")).items()}
    kept = [score * weight for score, weight in filter(None, scores.values())]
    parts = {name: found[0] if found else None for name, found in scores.items()}
    ((step, key),) = _trace_places(row, notes)
    yield Sampled(
        step=step,
        key=key,
        messages=messages_of([node.get("message") for node in path], "assistant"),
        prompt=first,
        reward=sum(kept) if kept else known(number_of(row.get("reward"))),
        parts=parts | parts_of(_object(row.get("metrics")), set(parts), notes),
        expected=expected_of(_object(_object(row.get("task")).get("data"))),
    )


def _last_branch(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages from a root to the last node. Raises ``BadRow``."""
    path: list[dict[str, Any]] = []
    at: Any = len(nodes) - 1
    while at is not None:
        if type(at) is not int or not 0 <= at < len(nodes) or len(path) > len(nodes):
            raise BadRow(_("its messages do not follow one another"))
        path.append(nodes[at])
        at = nodes[at].get("parent")
    return path[::-1]


def _score(value: Any) -> tuple[float, float] | None:
    """Score and weight of a reward; ``None`` where it was not scored."""
    given = value if isinstance(value, dict) else {"score": value}
    score, weight = known(number_of(given.get("score"))), known(number_of(given.get("weight", 1.0)))
    return None if score is None or weight is None else (score, weight)


def _recognise_nemo(path: Path) -> str:
    names = first_row(path).keys()
    return "Its rows have responses_create_params and response." if names >= _NEMO else ""


def _recognise_art(path: Path) -> str:
    row = first_row(path)
    one = next(iter(_trajectories(row)), {})
    is_talk = isinstance(one.get("messages_and_choices", one.get("messages")), list)
    return "Its rows have messages and a reward." if is_talk and "reward" in one else ""


def _recognise_trace(path: Path) -> str:
    row = first_row(path)
    is_trace = isinstance(row.get("nodes"), list) and ("rewards" in row or "task" in row)
    return "Its rows have nodes and rewards." if is_trace else ""


_NEMO = {"responses_create_params", "response"}
NEMO_READER = Reader(
    "nemo_rollouts",
    _("recorded rollouts"),
    "NeMo Gym",
    "Rollouts as JSON Lines: `responses_create_params` and the items of `response` become turns, `reward` as it "
    "is, every other number a part. Those of one `_ng_task_index` are a group.",
    _recognise_nemo,
    reading(_nemo),
    looking(_nemo_places),
)
ART_READER = Reader(
    "art_trajectories",
    _("trajectories"),
    "ART",
    "JSON Lines with `messages` (or `messages_and_choices`) and `reward`, one trajectory or one group (`trajectories`) "
    "a line: numbers in `metrics` are parts. The step is the number in the file's name.",
    _recognise_art,
    reading(_art),
    looking(_art_places),
)
TRACE_READER = Reader(
    "verifiers_traces",
    _("traces"),
    "verifiers",
    "`traces.jsonl`: the last branch of `nodes` becomes turns, `rewards` are parts and their sum by weight the reward, "
    "`metrics` parts. Traces of one `group_id` or task are a group.",
    _recognise_trace,
    reading(_trace),
    looking(_trace_places),
)
