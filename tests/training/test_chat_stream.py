"""Replies in pieces: what different servers send, read as one message, and what breaks in the middle."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.chat_stub import Stub, says, streams, stub
from training.chat_client import Endpoint, complete
from training.chat_reply import Refused, Reply, Streamed
from training.errors import EndpointFault

__all__ = ["stub"]
END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
USED = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}
ASK = {"messages": [{"role": "user", "content": "Hello"}]}


def _calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": list(pieces)}}]}


def _read(data: bytes, size: int = 7) -> tuple[Streamed, list[str]]:
    heard: list[str] = []
    seen = Streamed(heard.append)
    for at in range(0, len(data), size):
        seen.feed(data[at : at + size])
    return seen, heard


def _whole(*events: Any, **more: Any) -> tuple[dict[str, Any], list[str]]:
    seen, heard = _read(streams(*events, **more)[1].replace(b"<pause>", b""))
    assert seen.whole
    return seen.message, heard


def test_text_and_counts_are_read_whatever_the_size_of_the_pieces() -> None:
    data = streams("Grüß ", "dich, 世", "界!", END, USED)[1].replace(b"<pause>", b"")
    for size in (1, 2, 5, 10_000):
        seen, heard = _read(data, size)
        assert heard == ["Grüß ", "dich, 世", "界!"]
        assert seen.message == {"role": "assistant", "content": "Grüß dich, 世界!"}
        assert (seen.finish, seen.tokens, seen.whole) == (
            "stop",
            {"prompt_tokens": 11, "completion_tokens": 3},
            True,
        )


def test_the_halves_of_a_character_are_joined_and_one_alone_is_marked() -> None:
    """A piece with half a pair once ended the chat with Python's own words."""
    heard: list[str] = []
    seen = Streamed(heard.append)
    for text in ("a\\ud83d", "\\ude00b", "\\ud83d", "c", "\\ud83d"):
        seen.feed(f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n'.encode())
    assert heard == ["a", "😀b", "\N{REPLACEMENT CHARACTER}c"]
    assert seen.reply.text == "a😀b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"


def test_reasoning_and_refusal_come_in_pieces_and_are_no_text() -> None:
    deltas = [{"reasoning_content": "hm "}, {"reasoning": "hm"}, {"refusal": "I "}, {"refusal": "can\ud83d"}]
    deltas += [{"refusal": "\ude00"}, {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "!"}]}]}]
    seen, heard = _read(
        streams(*({"choices": [{"delta": delta}]} for delta in deltas), END)[1].replace(b"<pause>", b"")
    )
    assert (seen.reply.reasoning, seen.reply.refusal, seen.reply.text, heard) == ("hm hm!", "I can😀", "", [])


def test_counts_that_are_no_numbers_of_tokens_are_unknown() -> None:
    wrong = {"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": "9"}}
    seen, _heard = _read(streams(USED, wrong, END)[1].replace(b"<pause>", b""))
    assert (seen.reply.tokens, seen.reply.doubt) == (
        {"prompt_tokens": 11, "completion_tokens": 3},
        "prompt_tokens: -1, completion_tokens: 9",
    )


def test_lines_that_are_no_data_say_nothing() -> None:
    seen, heard = _read(b": ping\r\nevent: x\r\nid: 4\r\n\r\ndata:" + json.dumps(END).encode() + b"\r\n\r\n")
    assert (heard, seen.whole, seen.message["content"]) == ([], True, "")


@pytest.mark.parametrize(
    "pieces",
    [
        [  # OpenAI, vLLM: numbered, arguments in pieces
            _calls({"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}),
            _calls({"index": 0, "function": {"arguments": '{"x":'}}),
            _calls({"index": 1, "id": "b", "function": {"name": "sub", "arguments": '{"x": 2}'}}),
            _calls({"index": 0, "function": {"arguments": " 1}"}}),
        ],
        [  # not numbered, each call whole
            _calls({"id": "a", "function": {"name": "add", "arguments": '{"x": 1}'}}),
            _calls({"id": "b", "function": {"name": "sub", "arguments": '{"x": 2}'}}),
        ],
        [  # not numbered, arguments in pieces
            _calls({"id": "a", "function": {"name": "add", "arguments": '{"x"'}}),
            _calls({"function": {"arguments": ": 1}"}}),
            _calls({"id": "b", "function": {"name": "sub", "arguments": '{"x": 2}'}}),
        ],
    ],
)
def test_calls_are_put_together_as_servers_send_them(pieces: list[dict[str, Any]]) -> None:
    message, heard = _whole(*pieces, END)
    calls = message["tool_calls"]
    assert [(call["id"], call["function"]["name"]) for call in calls] == [("a", "add"), ("b", "sub")]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"x": 1}, {"x": 2}]
    assert heard == []


def test_the_older_shapes_of_calls() -> None:
    whole = _calls({"index": 0, "id": "a", "function": {"name": "add", "arguments": {"x": 1}}})
    assert _whole(whole, END)[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"x": 1}}
    pieces = [{"choices": [{"delta": {"function_call": piece}}]} for piece in ({"name": "add"}, {"arguments": "{}"})]
    (call,) = _whole(*pieces, END)[0]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": "{}"}


def test_at_most_64_calls_are_kept() -> None:
    many = [_calls({"index": n, "id": f"c{n}", "function": {"name": "add", "arguments": "{}"}}) for n in range(70)]
    assert len(_whole(*many, END)[0]["tool_calls"]) == 64
    seen, _heard = _read(streams(*many, END)[1].replace(b"<pause>", b""))
    assert seen.reply.problem == "More than 64 tool calls in one turn."
    seen, _heard = _read(streams(*many[:64], END)[1].replace(b"<pause>", b""))
    assert seen.reply.problem == ""


@pytest.mark.parametrize("data", [b"data: {\n", b"data: [1]\n", b"data: 4\n"])
def test_what_is_no_piece_of_a_completion_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        _read(data)


def test_an_error_in_the_middle_is_the_servers_own_sentence() -> None:
    with pytest.raises(Refused, match=r"^out of memory$"):
        _read(b'data: {"error": {"message": "out of memory"}}\n')
    with pytest.raises(Refused, match=r"^busy$"):
        _read(b'data: {"error": "busy"}\n')


# --- Asked for over HTTP -------------------------------------------------------------------------------------------
def _complete(stub: Stub, **more: Any) -> tuple[Reply, list[tuple[float, str]]]:
    heard: list[tuple[float, str]] = []
    began = time.monotonic()

    def hear(text: str) -> None:
        heard.append((time.monotonic() - began, text))

    asked = Endpoint(url=stub.url, model="m", who="The endpoint", timeout_s=5, **more)
    return asyncio.run(complete(asked, dict(ASK), hear)), heard


def test_text_is_heard_while_it_is_written(stub: Stub) -> None:
    stub.pause_s = 0.2
    stub.replies = [streams("One ", "two ", "three.", END, USED)]
    reply, heard = _complete(stub)
    assert reply == Reply({"role": "assistant", "content": "One two three."}, "stop", USED["usage"])
    assert [text for _at, text in heard] == ["One ", "two ", "three."]
    assert heard[2][0] - heard[0][0] > 0.3, "not when all was there"
    assert stub.asked[0]["stream"] is True and stub.asked[0]["stream_options"] == {"include_usage": True}


def test_a_server_that_answers_in_one_piece_is_read_as_before(stub: Stub) -> None:
    reply, heard = _complete(stub)
    assert (reply.message["content"], heard) == ("It is done.", [])


def test_a_server_that_knows_no_streaming_is_asked_again_without(stub: Stub) -> None:
    stub.replies = [(400, b'{"error": {"message": "stream_options is unknown"}}', {}), says("Fine.")]
    reply, _heard = _complete(stub)
    assert reply.message["content"] == "Fine."
    assert ["stream" in body for body in stub.asked] == [True, False]
    stub.replies = [(400, b'{"error": {"message": "no such option"}}', {})]
    with pytest.raises(EndpointFault, match="HTTP 400: no such option"):
        _complete(stub)


def test_a_client_that_does_not_read_along_gets_no_stream(stub: Stub) -> None:
    asyncio.run(complete(Endpoint(url=stub.url, model="m"), dict(ASK)))
    assert "stream" not in stub.asked[0]


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (streams("One ", end=""), "broke off in the middle"),
        (streams(end=""), "broke off in the middle"),
        (streams("One ", {"error": {"message": "CUDA out of memory."}}), r"with an error: CUDA out of memory\.$"),
        (streams("One ", end="data: {oops\n\n"), "no chat completion"),
        (streams({"choices": [{"delta": "x"}]}), "no chat completion"),
        ((200, b"<!doctype html>", {}), "web page"),
    ],
)
def test_what_breaks_in_the_middle_is_reported_and_not_asked_again(
    stub: Stub, reply: tuple[int, bytes, dict[str, str]], sentence: str
) -> None:
    stub.replies = [reply]
    with pytest.raises(EndpointFault, match=sentence):
        _complete(stub, attempts=3)
    assert len(stub.asked) == 1


def test_a_stream_has_a_largest_size(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.chat_client.MAX_STREAM_BYTES", 2000)
    stub.replies = [streams("x" * 3000, END)]
    with pytest.raises(EndpointFault, match="larger than"):
        _complete(stub)


def test_a_key_that_is_repeated_is_not_kept(stub: Stub) -> None:
    key = "sk-0123456789abcdef"
    stub.replies = [streams(f"Your key is {key}.", END)]
    reply, heard = _complete(stub, key=key)
    assert reply.message["content"] == "Your key is ***." and heard[0][1] == "Your key is ***."


@pytest.mark.parametrize(
    "pieces",
    [
        ("Your key is sk-0123456", "789abcdef", "."),
        tuple("Your key is sk-0123456789abcdef."),
        ("Your key is sk-0123456789abcdef.",),
    ],
)
def test_a_key_over_the_border_of_two_pieces_is_not_shown(stub: Stub, pieces: tuple[str, ...]) -> None:
    """Each piece was searched by itself."""
    stub.replies = [streams(*pieces, END)]
    reply, heard = _complete(stub, key="sk-0123456789abcdef")
    assert reply.message["content"] == "Your key is ***."
    assert "".join(text for _at, text in heard) == "Your key is ***."


def test_what_only_begins_as_the_key_is_shown_in_the_end(stub: Stub) -> None:
    stub.replies = [streams("It begins with sk-0123", END)]
    reply, heard = _complete(stub, key="sk-0123456789abcdef")
    assert reply.message["content"] == "".join(text for _at, text in heard) == "It begins with sk-0123"


def test_a_key_is_neither_in_a_thought_nor_in_a_call_nor_in_an_error(stub: Stub) -> None:
    key = "sk-0123456789abcdef"
    calls = [
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": half}}]}}
            ]
        }
        for half in ('{"a": "sk-0123456', '789abcdef"}')
    ]
    thoughts = [{"choices": [{"delta": {"reasoning_content": half}}]} for half in ("hm sk-012345", "6789abcdef")]
    stub.replies = [streams(*calls, *thoughts, END)]
    reply, _heard = _complete(stub, key=key)
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"a": "***"}'
    assert reply.message["reasoning_content"] == "hm ***"
    stub.replies = [streams("a", {"error": {"message": f"{'x' * 195} Bearer {key}"}})]
    with pytest.raises(EndpointFault) as caught:
        _complete(stub, key=key)
    assert "sk-" not in caught.value.message  # it is taken out before the text is cut
