"""What an endpoint answers is judged as a model's own text is: a contestant's bad answer counts, whatever its shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_stub import Stub, says, stub
from tests.training.algorithms.conftest import MakeJob, job_maker
from tests.training.helpers import of_type, scripted_server
from tests.training.rollout.test_endpoint import evaluation
from training.algorithms.playing import run_evaluate
from training.chat_reply import Reply, counted, read_reply, text_of, well_formed
from training.dialects import json_calls
from training.journal import TurnAdded
from training.rollout.endpoint import message_of, tool_call, turn_of

__all__ = ["stub"]
NONE = {"prompt_tokens": 0, "completion_tokens": 0}
DEEP = "[" * 400 + "]" * 400


@pytest.fixture(autouse=True)
def _no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.algorithms.playing.check_environment", lambda config: None)


@pytest.fixture
def make(tmp_path: Path) -> MakeJob:
    return job_maker(tmp_path, tmp_path / "no-model-is-needed")


def called(arguments: Any, name: Any = "echo") -> tuple[int, bytes, dict[str, str]]:
    return says(None, "tool_calls", tool_calls=[{"id": "k1", "function": {"name": name, "arguments": arguments}}])


def raw(message: str, finish: str = "stop", usage: str = "{}") -> tuple[int, bytes, dict[str, str]]:
    """A reply of which each part is written as it is given."""
    return 200, f'{{"choices": [{{"message": {message}, "finish_reason": "{finish}"}}], "usage": {usage}}}'.encode(), {}


BAD = {
    "half a surrogate in arguments": (called('{"text": "\\ud83d"}'), "half of a surrogate pair"),
    "raw half a surrogate in arguments": (called('{"text": "\udc00"}'), "half of a surrogate pair"),
    "half a surrogate in a name": (called("{}", "ec\ud83dho"), "half of a surrogate pair"),
    "half a surrogate in an object": (called({"text": "\udfff"}), "half of a surrogate pair"),
    "nested deeper than can be passed on": (called(f'{{"text": {DEEP}}}'), "nested deeper than 32 levels"),
    "an object nested deeper": (called({"text": json.loads(DEEP)}), "nested deeper than 32 levels"),
    "nested without end": (called("[" * 90_000), "not JSON"),
    "an object nested without end": (
        raw(
            '{"tool_calls": [{"function": {"name": "echo", "arguments": {"a": ' + "[" * 90_000 + "]" * 90_000 + "}}}]}"
        ),
        "nested too deeply",
    ),
    "NaN": (called('{"text": NaN}'), "NaN is not JSON"),
    "minus infinity": (called('{"text": [-Infinity]}'), "-Infinity is not JSON"),
    "infinity by overflow": (called('{"text": {"a": 1e999}}'), "not finite"),
    "minus infinity by overflow": (called('{"text": -3e400}'), "not finite"),
    "NaN in an object": (called({"text": float("nan")}), "not finite"),
    "more digits than Python reads": (called(f'{{"text": {"7" * 5000}}}'), "not JSON"),
    "the same in an object": (
        raw(f'{{"tool_calls": [{{"function": {{"name": "echo", "arguments": {{"a": {"7" * 5000}}}}}}}]}}'),
        "not finite",
    ),
    "a list": (called("[]"), "not an object"),
    "a text": (called('"red"'), "not an object"),
    "a number": (called(3), "not an object"),
    "truth": (called(True), "not an object"),
    "no name": (called("{}", ""), "no name"),
    "a name of spaces": (called("{}", "  "), "no name"),
    "a name that is none": (called("{}", 5), "no name"),
    "a call that is a text": (says(None, tool_calls=["echo"]), "no name"),
    "calls that are no list": (says("", tool_calls={"function": {"name": "echo"}}), "not a list"),
    "content that is no text": (says({"text": "red"}), "content of the message is not text"),
    "too many calls": (
        says(None, tool_calls=[{"function": {"name": "echo", "arguments": "{}"}}] * 65),
        "More than 64 tool calls",
    ),
}


@pytest.mark.parametrize(("answer", "words"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_reported_to_the_contestant(answer: Any, words: str) -> None:
    reply = read_reply(answer[1])
    turn = turn_of(reply, json_calls.parse_hermes, "call_")
    assert words in (turn.parse_error or "")
    TurnAdded(rollout="0", turn=1, messages=[message_of(turn, reply)], wrote=turn.wrote).model_dump_json()


@pytest.mark.parametrize(
    "name",
    [
        "half a surrogate in arguments",
        "half a surrogate in a name",
        "an object nested deeper",
        "an object nested without end",
        "NaN in an object",
        "infinity by overflow",
        "content that is no text",
    ],
)
def test_what_cannot_be_read_counts_as_a_parse_error(make: MakeJob, stub: Stub, tmp_path: Path, name: str) -> None:
    """It once excluded the rollout after three tries, or the environment got something else than was written."""
    reply, words = BAD[name]
    stub.replies = [reply]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, rollout={"max_turns": 1}))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    assert (finished.status, finished.parse_errors, finished.error) == ("truncated", 1, None)
    assert finished.reward is not None and len(stub.asked) == 1
    turn = of_type(tmp_path / "run", "turn")[1]
    assert words in turn.parse_error


def test_the_calls_next_to_a_broken_one_are_made() -> None:
    """As those of a model that is sampled here."""
    calls = [{"id": f"c{n}", "function": {"name": "echo", "arguments": given}} for n, given in enumerate(("{}", "{"))]
    turn = turn_of(Reply({"content": "Hm.", "tool_calls": calls}, "stop", NONE), json_calls.parse_hermes, "call_")
    assert [call.id for call in turn.tool_calls] == ["c0"] and turn.parse_error is not None
    assert turn.wrote == "\n".join(["Hm.", *(json.dumps(call) for call in calls)])


def test_what_is_read_is_read_as_it_was_written() -> None:
    many = [{"function": {"name": "echo", "arguments": "{}"}}] * 64
    turn = turn_of(Reply({"tool_calls": many}, "", NONE), json_calls.parse_hermes, "call_")
    assert (len(turn.tool_calls), turn.parse_error) == (64, None)
    depth = 30  # and two lists around it
    reply = Reply(
        {"tool_calls": [{"function": {"name": " f ", "arguments": f'{{"a": {"[" * depth}{"]" * depth}}}'}}]}, "", NONE
    )
    assert turn_of(reply, json_calls.parse_hermes, "call_").tool_calls[0].name == "f"
    assert tool_call({"name": "f", "arguments": '{"a": 1e308, "b": "\\ud83d\\ude00"}'}, "n").arguments == {
        "a": 1e308,
        "b": "😀",
    }
    assert tool_call({"id": "\ud83d", "name": "f", "arguments": "  "}, "n").id == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("red \ud83d", "red \N{REPLACEMENT CHARACTER}"),
        ("\ude00 red", "\N{REPLACEMENT CHARACTER} red"),
        ("a\ud83db", "a\N{REPLACEMENT CHARACTER}b"),
        ("\ud83d\ude00", "😀"),
        ("Grüße 世", "Grüße 世"),
    ],
)
def test_half_a_surrogate_in_a_text_is_read_as_a_tokenizer_decodes_it(
    make: MakeJob, stub: Stub, tmp_path: Path, text: str, read: str
) -> None:
    assert well_formed(text) == text_of(text) == read
    stub.replies = [says(text, refusal=text, reasoning_content=text)]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, rollout={"max_turns": 1}))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    message = of_type(tmp_path / "run", "turn")[1].messages[0]
    assert finished.error is None and (message.content, message.refusal, message.reasoning) == (read, read, read)


def test_bytes_that_are_no_utf8_are_no_fault_of_the_server() -> None:
    data = b'{"choices": [{"message": {"content": "red \xe4\xb8"}}]}'
    assert read_reply(data).text == "red \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("message", "reasoning"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning_content": None, "reasoning": "hm"}, "hm"),
        ({"reasoning_content": "hm", "reasoning": "hm"}, "hm"),
        ({"thinking": "hm"}, "hm"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, "hm"),
        ({"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Red."}]}, "hm"),
        ({"reasoning_content": 5}, ""),
        ({"content": "Red."}, ""),
    ],
)
def test_reasoning_is_read_where_servers_write_it(message: dict[str, Any], reasoning: str) -> None:
    reply = Reply(message, "stop", NONE)
    turn = turn_of(reply, json_calls.parse_hermes, "call_")
    assert (message_of(turn, reply).reasoning or "") == reasoning
    assert turn.text == ("Red." if "Red." in str(message) else "") and turn.parse_error is None


@pytest.mark.parametrize(
    ("finish", "kept", "cut"),
    [
        ("length", "length", True),
        ("max_tokens", "length", True),
        ("model_length", "length", True),
        ("content_filter", "content_filter", False),
        ("stop", None, False),
        ("tool_calls", None, False),
        (None, None, False),
    ],
)
def test_why_a_turn_ended_is_kept(
    make: MakeJob, stub: Stub, tmp_path: Path, finish: Any, kept: str | None, cut: bool
) -> None:
    stub.replies = [says(None, finish, reasoning_content="All my words are thoughts.")]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, rollout={"max_turns": 1}))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    message = of_type(tmp_path / "run", "turn")[1].messages[0]
    assert (message.finish, message.reasoning, message.content) == (kept, "All my words are thoughts.", "")
    assert (finished.status == "truncated") is cut


def test_a_refusal_is_no_answer_and_is_kept(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    stub.replies = [says(None, refusal="I cannot help with that.")]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url))
    message = of_type(tmp_path / "run", "turn")[1].messages[0]
    assert (message.content, message.refusal, message.reasoning) == ("", "I cannot help with that.", None)
    parts = Reply({"content": [{"type": "refusal", "refusal": "No."}]}, "stop", NONE)
    assert (parts.refusal, parts.text) == ("No.", "")


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (7, 7),
        (7.0, 7),
        (0, 0),
        (None, 0),
        (100_000_000, 100_000_000),
        (100_000_001, None),
        (-1, None),
        (1.5, None),
        ("7", None),
        (True, None),
        ([7], None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
    ],
)
def test_a_count_of_tokens_is_a_number_of_them(value: Any, tokens: int | None) -> None:
    found, doubt = counted({"prompt_tokens": 3, "completion_tokens": value})
    assert found == {"prompt_tokens": 3, "completion_tokens": tokens or 0}
    assert bool(doubt) is (tokens is None) and ("completion_tokens" in doubt) is (tokens is None)


@pytest.mark.parametrize("usage", [None, [], "many", 5])
def test_a_usage_that_is_no_object_counts_nothing(usage: Any) -> None:
    assert counted(usage) == (NONE, "")


def test_counts_that_are_none_are_estimated_and_reported_once(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    reply = '{"content": "It is red, I say.", "reasoning_content": "one two three"}'
    stub.replies = [raw(reply, usage='{"prompt_tokens": -40, "completion_tokens": 1e300}')]
    prices = {"price_in": 2.0, "price_out": 10.0}
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint=prices, evaluate={"tasks": 3}))
    finished = of_type(tmp_path / "run", "rollout_finished")
    assert len(finished) == 3 and all(0 < event.cost < 0.01 and 3 < event.tokens < 100 for event in finished)
    warnings = [event.message for event in of_type(tmp_path / "run", "log") if "token counts" in event.message]
    assert warnings == [
        "The endpoint's token counts cannot be used (prompt_tokens: -40, completion_tokens: 1e+300): its tokens and "
        "their cost are estimated."
    ]
