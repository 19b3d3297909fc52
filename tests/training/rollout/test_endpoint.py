"""An OpenAI-compatible endpoint as a contestant: each answer is a turn, a typed failure or a pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.chat_stub import Stub, call, says, stub
from tests.training.algorithms.conftest import MakeJob, job_maker
from tests.training.helpers import TOOLS, of_type, scripted_server
from training.algorithms.job import Job
from training.algorithms.playing import run_evaluate, run_sample
from training.chat_reply import text_of
from training.errors import BudgetSpent, ConfigError, EndpointAway, EndpointBusy, EndpointFault, EndpointRefused
from training.journal import Metrics, read_events
from training.rollout.endpoint import Budget, Tried, calls_of, tool_call, try_out, written

__all__ = ["stub"]


@pytest.fixture(autouse=True)
def _no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.algorithms.playing.check_environment", lambda config: None)


@pytest.fixture
def make(tmp_path: Path) -> MakeJob:
    return job_maker(tmp_path, tmp_path / "no-model-is-needed")


def evaluation(make: MakeJob, stub: Stub, url: str, name: str = "run", **groups: Any) -> Job:
    groups["endpoint"] = {
        "url": stub.url,
        "model": "gpt-oss",
        "timeout_s": 10,
        "patience_s": 0.3,
        **groups.get("endpoint", {}),
    }
    groups["evaluate"] = {"tasks": 1, "replays": 0, **groups.get("evaluate", {})}
    groups["rollout"] = {"prompts_per_step": 1, "num_generations": 1, "max_turns": 3, **groups.get("rollout", {})}
    return make(name, kind="evaluate", environment={"url": url}, **groups)


def test_its_calls_are_played_and_its_tokens_counted(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    stub.replies = [says(None, "tool_calls", tool_calls=[call("red")]), says("It is red.")]
    prices = {"price_in": 2.0, "price_out": 10.0}
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint=prices, rollout={"temperature": 0.5, "max_turn_tokens": 40}))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    assert (finished.status, finished.turns, finished.tokens, finished.reward) == ("completed", 2, 14, 1.0)
    assert finished.cost == pytest.approx((200 * 2.0 + 14 * 10.0) / 1e6)
    first, second = stub.asked
    assert first["model"] == "gpt-oss" and first["tools"] == TOOLS and first["temperature"] == 0.5
    assert first["messages"] == [{"role": "user", "content": "Say 345 please."}] and first["max_tokens"] == 40
    assert 0 <= first["seed"] < 2**31 and second["seed"] != first["seed"]
    assert second["messages"][1]["tool_calls"][0]["function"] == {"name": "echo", "arguments": '{"text": "red"}'}
    assert second["messages"][2] == {"role": "tool", "content": "red", "tool_call_id": "c9"}


@pytest.mark.parametrize(
    ("reply", "status", "parse_errors"),
    [
        (says('<tool_call>{"name": "echo", "arguments": {"text": "a"}}</tool_call>'), "truncated", 0),  # by the dialect
        (
            says("", tool_calls=[{"function": {"name": "echo", "arguments": {"text": "a"}}}]),
            "truncated",
            0,
        ),  # an object
        (says("", function_call={"name": "echo", "arguments": '{"text": "a"}'}), "truncated", 0),  # the older shape
        (says("", tool_calls=[{"function": {"name": "echo", "arguments": '{"text": '}}]), "truncated", 3),
        (says("", tool_calls=[{"function": {"arguments": "{}"}}]), "truncated", 3),
        (says("", tool_calls=[{"function": {"name": "echo", "arguments": "[1]"}}]), "truncated", 3),
        (says([{"type": "text", "text": "It is "}, {"type": "text", "text": "done."}]), "completed", 0),
        (says(None, reasoning_content="hm"), "completed", 0),
        (says("cut off in the mid", "length"), "truncated", 0),
    ],
)
def test_every_shape_of_an_answer(
    make: MakeJob, stub: Stub, tmp_path: Path, reply: Any, status: str, parse_errors: int
) -> None:
    stub.replies = [reply]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    assert (finished.status, finished.parse_errors) == (status, parse_errors) and finished.error is None


@pytest.mark.parametrize(
    ("reply", "content", "wrote"),
    [
        (says('Red. <tool_call>{"name": ', "stop"), "Red.", 'Red. <tool_call>{"name": '),
        (
            says("Red.", tool_calls=[{"function": {"name": "回声", "arguments": '{"a": '}}]),
            "Red.",
            'Red.\n{"function": {"name": "回声", "arguments": "{\\"a\\": "}}',
        ),
        (says("", tool_calls=[{"function": {"arguments": "{}"}}]), "", '{"function": {"arguments": "{}"}}'),
    ],
)
def test_a_broken_call_is_recorded_as_it_was_sent(
    make: MakeJob, stub: Stub, tmp_path: Path, reply: Any, content: str, wrote: str
) -> None:
    stub.replies = [reply]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, rollout={"max_turns": 1}))
    turn = of_type(tmp_path / "run", "turn")[1]
    assert (turn.messages[0].content, turn.messages[0].tool_calls, turn.wrote) == (content, None, wrote)


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        ((200, b"<html>sign in</html>", {}), "endpoint_fault", "is no chat completion"),
        ((200, b'{"choices": []}', {}), "endpoint_fault", "is no chat completion"),
        ((200, b"", {}), "endpoint_fault", "is no chat completion"),
        ((500, b'{"error": {"message": "out of memory"}}', {}), "endpoint_fault", "HTTP 500: out of memory"),
        ((200, b"<!DOCTYPE html><html>", {}), "endpoint_fault", "is no chat completion: it is a web page (HTML)"),
        ((200, b" ", {}), "endpoint_fault", "is no chat completion: it is empty"),
        ((200, b"x" * 1_100_000, {}), "endpoint_fault", "larger than 1 MB"),
    ],
)
def test_a_failure_of_the_endpoint_is_missing_and_never_0(
    make: MakeJob, stub: Stub, tmp_path: Path, reply: Any, code: str, words: str
) -> None:
    stub.replies = [reply]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    assert (finished.status, finished.reward, finished.error.code) == ("excluded", None, code)
    assert words in finished.error.message and finished.error.boundary == "policy"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_wrong_key_pauses_the_run(make: MakeJob, stub: Stub, at_once: bool) -> None:
    """At the first word, before any episode; later as soon as it is refused."""
    refusal = (401, b'{"error": {"message": "Incorrect API key"}}', {})
    stub.replies = [refusal] if at_once else [says("It is done."), refusal]
    with scripted_server() as url, pytest.raises(EndpointRefused, match="HTTP 401: Incorrect API key") as refused:
        run_evaluate(evaluation(make, stub, url, evaluate={"tasks": 20, "replays": 2}))
    assert refused.value.pauses and len(stub.asked) <= (0 if at_once else 3)
    assert refused.value.code == "endpoint_key_refused"


@pytest.mark.parametrize(
    ("replies", "kind", "words"),
    [
        ([(429, b"", {"Retry-After": "600"})], EndpointBusy, "it may be asked again in"),
        ([(503, b"", {})], EndpointAway, "HTTP 503"),
    ],
)
def test_an_endpoint_that_stays_away_pauses_the_run(
    make: MakeJob, stub: Stub, tmp_path: Path, replies: Any, kind: type[EndpointFault], words: str
) -> None:
    """The waiting is reported, with what it waits for; nothing that it cut off is scored."""
    stub.replies = replies
    with scripted_server() as url, pytest.raises(kind) as away:
        run_evaluate(evaluation(make, stub, url, evaluate={"tasks": 4, "replays": 2}))
    assert away.value.pauses and words in away.value.message and "tries" in away.value.message
    held = of_type(tmp_path / "run", "held")
    assert held and {event.error.code for event in held if event.error} == {kind.code}
    assert not [event for event in of_type(tmp_path / "run", "rollout_finished") if event.reward is not None]


def test_an_outage_that_passes_costs_no_rollout(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    stub.replies = [(503, b"", {})] * 3 + [says("It is done.")]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint={"patience_s": 60}, evaluate={"tasks": 4, "replays": 0}))
    finished = of_type(tmp_path / "run", "rollout_finished")
    assert len(finished) == 4 and {event.status for event in finished} == {"completed"}
    assert of_type(tmp_path / "run", "held")[-1].error is None  # and the page learns that it is over


def test_the_key_is_taken_out_of_what_an_endpoint_repeats(
    make: MakeJob, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-a-key-that-is-long-enough"
    monkeypatch.setenv("EVAL_KEY", key)
    stub.replies = [says(f"Your key is {key}.")]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint={"key_variable": "EVAL_KEY"}))
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert stub.keys == [f"Bearer {key}"] * 2 and "Your key is ***." in journal and key not in journal


def test_tools_are_described_in_words_to_a_server_without_tool_calls(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    called = '<tool_call>{"name": "echo", "arguments": {"text": "red"}}</tool_call>'
    stub.replies = [says(called), says("It is red.")]
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint={"tool_format": "text"}))
    (finished,) = of_type(tmp_path / "run", "rollout_finished")
    assert (finished.status, finished.reward, finished.turns) == ("completed", 1.0, 2)
    first, second = stub.asked
    assert "tools" not in first and json.dumps(TOOLS) in first["messages"][0]["content"]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][3]["content"] == "<tool_response>\nred\n</tool_response>"
    assert '"name": "echo"' in second["messages"][2]["content"]


def test_a_sample_plays_an_endpoint_too(make: MakeJob, stub: Stub, tmp_path: Path) -> None:
    with scripted_server() as url:
        groups = {"endpoint": {"url": stub.url, "model": "gpt-oss", "max_tokens": 500}, "run": {"max_steps": 3}}
        rollout = {"prompts_per_step": 2, "num_generations": 1, "max_turns": 3}
        with pytest.raises(BudgetSpent):
            run_sample(make("run", kind="sample", environment={"url": url}, rollout=rollout, **groups))
    assert len(stub.asked) == 4  # the first word counts as well
    used = of_type(tmp_path / "run", "metrics")[-1].values
    assert used["endpoint/tokens"] == 535 and "endpoint/cost" not in used  # no price is set, which is not 0


def test_an_endpoint_of_a_project_is_known_only_there(make: MakeJob, stub: Stub) -> None:
    with scripted_server() as url, pytest.raises(ConfigError, match="is known only in its project"):
        run_evaluate(evaluation(make, stub, url, model={"source": "endpoint:gpt"}, endpoint={"url": "", "model": ""}))


def test_an_unreachable_endpoint_is_named(make: MakeJob, stub: Stub) -> None:
    with scripted_server() as url, pytest.raises(EndpointAway, match="The endpoint cannot be reached"):
        run_evaluate(evaluation(make, stub, url, endpoint={"url": "http://127.0.0.1:9/v1"}))


@pytest.mark.parametrize("limit", [{"max_tokens": 500}, {"max_cost": 0.0005, "price_in": 1.0}])
def test_a_spent_budget_pauses_and_a_second_attempt_remembers_it(
    make: MakeJob, stub: Stub, tmp_path: Path, limit: dict[str, Any]
) -> None:
    with scripted_server() as url:
        first = evaluation(make, stub, url, "run/1", endpoint=limit, evaluate={"tasks": 20})
        with pytest.raises(BudgetSpent) as spent:
            run_evaluate(first)
        first.journal.close()
        assert spent.value.pauses and len(stub.asked) == 4
        second = evaluation(make, stub, url, "run/2", endpoint=limit, evaluate={"tasks": 20})
        second.attempt, second.earlier = 2, (tmp_path / "run" / "1",)
        with pytest.raises(BudgetSpent):
            run_evaluate(second)
    assert len(stub.asked) == 4  # prompts, the first word, and rollouts that were cut off, count as well
    used = [event.values for _n, event in read_events(tmp_path / "run/1/journal.jsonl") if isinstance(event, Metrics)]
    assert (used and used[-1]["endpoint/tokens"] >= 500) or "max_cost" in limit


def test_the_key_is_sent_as_a_bearer(make: MakeJob, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAL_KEY", "sk-1")
    with scripted_server() as url:
        run_evaluate(evaluation(make, stub, url, endpoint={"key_variable": "EVAL_KEY"}))
    assert stub.keys == ["Bearer sk-1", "Bearer sk-1"]


def test_small_parts() -> None:
    message = Message(role="assistant", tool_calls=[ToolCall(id="a", name="f", arguments={"x": "é"})])
    assert written(message)["tool_calls"][0]["function"]["arguments"] == '{"x": "é"}'
    assert text_of(None) == text_of(3) == "" and text_of(["a", {"text": "b"}, {"image": 1}]) == "ab"
    assert calls_of({"tool_calls": "x"}) == [] and tool_call({"name": "f"}, "n0") == ToolCall(id="n0", name="f")
    budget = Budget(price_in=1.0, price_out=3.0)
    assert Budget().spend(1000, 1000) is None
    assert budget.spend(1_000_000, 2_000_000) == 7.0 and (budget.cost, budget.tokens) == (7.0, 3_000_000)
    budget.check()


def test_it_is_tried_out_with_one_tool(stub: Stub) -> None:
    add = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    text = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    broken = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "[1]"}}
    stub.replies = [
        says(None, "tool_calls", tool_calls=[add]),
        says(text),
        says("", tool_calls=[call("red")]),
        says("", tool_calls=[broken]),
    ]
    found = [try_out(stub.url, "gpt-oss", key="k-1", timeout_s=10, tools_in_words=at == 1) for at in range(4)]
    assert found == [
        Tried(100, 7, "", True, ""),
        Tried(100, 7, "", True, ""),
        Tried(100, 7, "", False, ""),  # another tool
        Tried(100, 7, "", False, "The arguments of add are not an object."),
    ]
    native, in_words = stub.asked[:2]
    question = {"role": "user", "content": "What is 2 + 3? Use the tool `add`."}
    assert native["messages"] == [question] and native["tools"][0]["function"]["name"] == "add"
    assert "tools" not in in_words and in_words["messages"][1] == question and stub.keys[0] == "Bearer k-1"
    assert '"name": "add"' in in_words["messages"][0]["content"] and in_words["max_tokens"] == 256


def test_it_is_tried_out_once(stub: Stub) -> None:
    stub.replies = [(503, b"", {})]
    with pytest.raises(EndpointAway):
        try_out(stub.url, "gpt-oss", timeout_s=10)
    assert len(stub.asked) == 1
