"""The test of an endpoint: each answer is a finding in words, and never its key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone, translation

from tests.chat_stub import Stub, says
from tests.webapp.endpoints.conftest import KEY
from webapp.endpoints.models import Endpoint, EndpointSpend
from webapp.endpoints.spending import spend_add, turn_used, used_on
from webapp.endpoints.testing import FINDINGS, endpoint_test, findings_of

pytestmark = pytest.mark.django_db
ADD = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
TEXT_CALL = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'


def codes(endpoint: Endpoint) -> list[str]:
    return [item["code"] for item in (endpoint.test or {})["findings"]]


def test_a_good_endpoint_works(make_endpoint: Callable[..., Endpoint], stub: Stub) -> None:
    stub.replies, stub.models = [says(None, "tool_calls", tool_calls=[ADD])], ["other", "gpt-oss"]
    tested = endpoint_test(make_endpoint(price_in=2.0, price_out=10.0, currency="usd"))
    assert tested.test["state"] == "ok" and codes(tested) == ["answers", "calls", "models"]
    assert stub.keys == [f"Bearer {KEY}"] and stub.asked[0]["tools"][0]["function"]["name"] == "add"
    assert stub.asked[0]["max_tokens"] <= 256 and stub.asked[0]["model"] == "gpt-oss"
    sentences = [found.sentence for found in findings_of(tested)]
    assert "100 tokens read, 7 written" in sentences[0] and "lists 2 models" in sentences[2]
    spent = EndpointSpend.objects.get(endpoint=tested)
    assert (spent.tokens, spent.run_id) == (107, None) and spent.cost == pytest.approx((200 + 70) / 1e6)
    endpoint_test(tested)
    spent.refresh_from_db()
    assert spent.tokens == 214 and EndpointSpend.objects.count() == 1


@pytest.mark.parametrize(
    ("reply", "over", "wanted"),
    [
        ((401, json.dumps({"error": {"message": f"Incorrect API key {KEY}"}}).encode(), {}), {}, "key"),
        ((401, b"", {}), {"key": ""}, "no_key"),
        ((403, b"", {}), {}, "forbidden"),
        ((404, b'{"error": {"message": "no model gpt-oss"}}', {}), {}, "unknown"),
        ((429, b"", {"Retry-After": "600"}), {}, "busy"),
        ((503, b"", {}), {}, "down"),
        ((200, b"<!doctype html><p>sign in", {}), {}, "html"),
        ((200, b"", {}), {}, "empty"),
        ((200, b'{"object": "error"}', {}), {}, "other"),
        ((500, b"", {}), {}, "other"),
    ],
)
def test_what_does_not_work_is_named(
    make_endpoint: Callable[..., Endpoint], stub: Stub, reply: Any, over: dict[str, Any], wanted: str
) -> None:
    stub.replies = [reply]
    tested = endpoint_test(make_endpoint(**over))
    assert codes(tested) == [wanted] and tested.test["state"] == "bad" and tested.tested_at is not None
    assert KEY not in json.dumps(tested.test) and not EndpointSpend.objects.exists()
    (found,) = findings_of(tested)
    assert found.hint and "%(" not in found.sentence
    if wanted == "busy":
        assert "600 s" in found.sentence
    if wanted == "unknown":
        assert "no model gpt-oss" in found.sentence


@pytest.mark.parametrize(
    ("reply", "over", "wanted"),
    [
        (says("It is 5."), {}, "no_call"),
        (says("", tool_calls=[{"function": {"name": "add", "arguments": '{"a": '}}]), {}, "bad_call"),
        (says("", tool_calls=[{"function": {"arguments": "{}"}}]), {}, "bad_call"),
        (says('<tool_call>{"name": "add"'), {}, "bad_call"),
        (says("", function_call={"name": "add", "arguments": '{"a": 2, "b": 3}'}), {}, "calls"),
        (says(TEXT_CALL), {"tool_format": "text"}, "calls"),
    ],
)
def test_how_it_calls_tools_is_reported(
    make_endpoint: Callable[..., Endpoint], stub: Stub, reply: Any, over: dict[str, Any], wanted: str
) -> None:
    stub.replies = [reply]
    tested = endpoint_test(make_endpoint(**over))
    assert codes(tested)[:2] == ["answers", wanted]
    assert tested.test["state"] == ("ok" if wanted == "calls" else "doubt")
    assert ("tools" in stub.asked[0]) == (tested.tool_format == "native")


def test_a_slow_one_and_an_absent_one(make_endpoint: Callable[..., Endpoint], stub: Stub, settings: Any) -> None:
    stub.delay_s = 2.0
    slow = endpoint_test(make_endpoint(timeout_s=1.0))
    assert codes(slow) == ["slow"] and "1 s" in findings_of(slow)[0].sentence
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, "127.0.0.1:9"]
    away = endpoint_test(make_endpoint(name="away", url="http://127.0.0.1:9/v1"))
    assert codes(away) == ["down"]


def test_an_address_that_was_forbidden_since_is_not_asked(
    make_endpoint: Callable[..., Endpoint], stub: Stub, settings: Any
) -> None:
    endpoint = make_endpoint()
    settings.OUTBOUND_ALLOW = []
    assert codes(endpoint_test(endpoint)) == ["address"] and not stub.keys


def test_a_model_that_is_not_listed_and_tokens_that_are_not_counted(
    make_endpoint: Callable[..., Endpoint], stub: Stub
) -> None:
    stub.models = ["llama-3", "qwen"]
    answer = {"choices": [{"message": {"content": "5"}, "finish_reason": "stop"}]}
    stub.replies = [(200, json.dumps(answer).encode(), {})]
    tested = endpoint_test(make_endpoint())
    assert codes(tested) == ["uncounted", "no_call", "model_unlisted"]
    assert "llama-3, qwen" in findings_of(tested)[2].sentence


def test_counts_that_are_no_numbers_of_tokens_are_named(make_endpoint: Callable[..., Endpoint], stub: Stub) -> None:
    answer = {"choices": [{"message": {"content": "5"}}], "usage": {"prompt_tokens": True, "completion_tokens": 3}}
    stub.replies = [(200, json.dumps(answer).encode(), {})]
    tested = endpoint_test(make_endpoint())
    assert codes(tested)[0] == "miscounted" and "prompt_tokens: True" in findings_of(tested)[0].sentence


def test_every_finding_is_in_the_reader_s_language(make_endpoint: Callable[..., Endpoint]) -> None:
    values = dict.fromkeys(("detail", "count", "names", "seconds", "prompt", "sampled", "status"), "1")
    endpoint = make_endpoint()
    endpoint.test = {"findings": [{"code": code, "values": values} for code in FINDINGS]}
    english = findings_of(endpoint)
    with translation.override("zh-hans"):
        chinese = findings_of(endpoint)
    assert len(english) == len(FINDINGS)
    assert all(one.sentence != other.sentence for one, other in zip(english, chinese, strict=True))


def test_a_key_among_the_models_is_not_shown(make_endpoint: Callable[..., Endpoint], stub: Stub) -> None:
    """The list of models was kept as it came."""
    stub.models = [f"model-of-{KEY}", "other"]
    stub.replies = [says(None, "tool_calls", tool_calls=[ADD])]
    tested = endpoint_test(make_endpoint())
    assert KEY not in json.dumps(tested.test) and "model-of-***, other" in findings_of(tested)[2].sentence


@pytest.mark.parametrize("count", ["1e400", "-500000", "9" * 22, "9" * 5000, "1.5", '"7"', "true", "[1]", "100000001"])
def test_counts_out_of_range_are_uncounted_and_take_nothing_back(
    make_endpoint: Callable[..., Endpoint], stub: Stub, count: str
) -> None:
    """An answer undid the limit of a day, and a larger one was an error 500."""
    endpoint = make_endpoint(price_in=1.0, price_out=1.0, currency="usd")
    turn_used(endpoint, read=1000, written=0)
    usage = f'"usage": {{"prompt_tokens": {count}, "completion_tokens": 3}}'
    stub.replies = [(200, f'{{"choices": [{{"message": {{"content": "5"}}}}], {usage}}}'.encode(), {})]
    tested = endpoint_test(endpoint)
    assert codes(tested)[0] == "miscounted" and "prompt_tokens" in findings_of(tested)[0].sentence
    used = used_on(endpoint)
    assert used.tokens == 1003 and used.cost == pytest.approx(1003 / 1e6)


@pytest.mark.parametrize(("count", "code"), [(0, "uncounted"), (1, "answers"), (100_000_000, "answers")])
def test_both_ends_of_the_range_are_numbers_of_tokens(
    make_endpoint: Callable[..., Endpoint], stub: Stub, count: int, code: str
) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": 3}
    answer = {"choices": [{"message": {"content": "5"}}], "usage": usage}
    stub.replies = [(200, json.dumps(answer).encode(), {})]
    tested = endpoint_test(make_endpoint())
    assert codes(tested)[0] == code and used_on(tested).tokens == count + 3


def test_nothing_is_ever_taken_off_what_was_used(make_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = make_endpoint(price_in=1.0, price_out=1.0, currency="usd")
    turn_used(endpoint, read=1000, written=0)
    spend_add(endpoint, tokens=-500, cost=-1.0, at=timezone.now())
    assert (used_on(endpoint).tokens, used_on(endpoint).cost) == (1000, pytest.approx(0.001))
