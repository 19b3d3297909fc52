"""Chats with an endpoint of the project: a real chat process asks a stub, and all it uses is counted and held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.chat_stub import Stub, call, says, streams
from tests.markup import dense
from tests.webapp.endpoints.conftest import KEY, make_endpoint, stub
from webapp.chat.holder import Desk
from webapp.chat.models import Answer, Chat
from webapp.chat.services import turn_send
from webapp.common.pools import ENDPOINT
from webapp.endpoints.models import Endpoint, EndpointSpend
from webapp.endpoints.services import endpoint_change, endpoint_delete
from webapp.endpoints.spending import spend_add, turn_used
from webapp.people.teams.models import Project, User

__all__ = ["make_endpoint", "stub"]
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(120)]
Maker = Callable[..., Chat]
Adder = Callable[..., Endpoint]
GPT = [{"source": "endpoint:gpt"}]
USED = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}
AT_FAULT = "budget_spent"


@pytest.fixture(autouse=True)
def _soon_idle(settings: Any) -> None:
    settings.CHAT_IDLE_S = 0.2


def _answer(chat: Chat, text: str) -> Answer:
    chat.refresh_from_db()
    (answer,) = turn_send(chat=chat, user=chat.created_by, text=text, parameters={}).answers.all()
    Desk(ENDPOINT).run()
    answer.refresh_from_db()
    return answer


def test_its_words_come_as_they_are_written_and_are_paid_for(
    make_chat: Maker, make_endpoint: Adder, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = make_endpoint(price_in=1.0, price_out=10.0, currency="EUR")
    stub.pause_s, stub.replies = 0.3, [streams("One ", "two ", "three.", USED)]
    seen: list[str] = []
    keep = Desk._keep_answer

    def remember(desk: Desk, live: Any, **columns: Any) -> None:
        seen.append(columns.get("partial", ""))
        keep(desk, live, **columns)

    monkeypatch.setattr(Desk, "_keep_answer", remember)
    chat = make_chat(GPT)
    answer = _answer(chat, "Count.")
    assert (answer.state, answer.messages) == ("done", [{"role": "assistant", "content": "One two three."}])
    assert "One " in seen and "One two " in seen, "before it was whole"
    assert stub.keys == [f"Bearer {KEY}"] and stub.asked[0]["messages"] == [{"role": "user", "content": "Count."}]
    (row,) = EndpointSpend.objects.all()
    assert (row.endpoint, row.chat_id, row.run_id, row.name) == (endpoint, chat.pk, None, "Count.")
    assert (row.tokens, row.cost) == (14, pytest.approx(41e-6))
    assert _answer(chat, "Again.").state == "done"
    row.refresh_from_db()
    assert (EndpointSpend.objects.count(), row.tokens) == (1, 28)


def test_it_needs_no_memory_of_this_host(
    make_chat: Maker, make_endpoint: Adder, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_endpoint()
    stub.replies = [streams("One.", USED)]
    monkeypatch.setattr("webapp.chat.holder.has_room", lambda model: False)
    answer = _answer(make_chat(GPT), "Count.")
    assert (answer.state, answer.pool, answer.progress) == ("done", ENDPOINT, {})


def test_what_is_no_part_of_its_answer_is_shown_in_the_chat_as_what_it_is(
    make_chat: Maker, make_endpoint: Adder, stub: Stub
) -> None:
    """An answer of thoughts alone was once empty; half of a character ended it with Python's own words."""
    make_endpoint()
    apart = [{"choices": [{"delta": {"reasoning": "two and three"}}]}, {"choices": [{"delta": {"refusal": "No."}}]}]
    end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    stub.replies = [streams(*apart, "Hm \ud83d", end), says(None, "content_filter", reasoning_content="hm \udc00")]
    answer = _answer(make_chat(GPT), "One")
    (message,) = answer.messages
    assert (message["content"], message["reasoning"], message["refusal"], message["finish"]) == (
        "Hm \N{REPLACEMENT CHARACTER}",
        "two and three",
        "No.",
        "length",
    )
    assert (answer.state, answer.ending["why"]) == ("done", "length")
    (message,) = _answer(make_chat(GPT), "Two").messages
    assert (message["content"], message["reasoning"], message["finish"]) == (
        "",
        "hm \N{REPLACEMENT CHARACTER}",
        "content_filter",
    )


def test_a_chat_may_use_as_much_as_a_run(make_chat: Maker, make_endpoint: Adder, stub: Stub) -> None:
    make_endpoint(max_run_tokens=14)
    stub.replies = [streams("Yes.", USED)]
    chat = make_chat(GPT)
    assert _answer(chat, "One").state == "done"
    over = _answer(chat, "Two")
    assert (over.state, over.error["code"]) == ("failed", AT_FAULT)
    assert over.error["message"] == "This chat has used 14 tokens of the endpoint gpt, and may use 14."
    assert len(stub.asked) == 1
    assert _answer(make_chat(GPT), "Another chat").state == "done"


def test_what_all_may_spend_in_a_day_holds_for_chats(make_chat: Maker, make_endpoint: Adder, stub: Stub) -> None:
    endpoint = make_endpoint(price_in=1.0, currency="USD", max_day_cost=2.0, max_run_cost=1.5)
    spend_add(endpoint, tokens=5, cost=2.0, at=timezone.now())
    over = _answer(make_chat(GPT), "One")
    assert (over.state, over.error["code"]) == ("failed", AT_FAULT)
    assert "2 USD" in over.error["message"] and "tomorrow" in over.error["hint"]
    assert stub.asked == []


def test_an_answer_that_would_go_on_beyond_the_limit_ends(
    make_chat: Maker, make_endpoint: Adder, make_environment: Any, tools_server: str, stub: Stub
) -> None:
    make_endpoint(price_out=1000.0, currency="USD", max_run_cost=0.01)
    stub.replies = [says("", tool_calls=[call("x") | {"function": {"name": "nothing", "arguments": "{}"}}])]
    place = make_environment(name="bed")
    answer = _answer(make_chat(GPT, environment=place.name), "Call tools for ever.")
    assert (answer.state, answer.error["code"]) == ("failed", AT_FAULT)
    assert answer.error["message"] == "This chat has spent 0.014 USD at the endpoint gpt, and may spend 0.01 USD."
    assert [message["role"] for message in answer.messages].count("assistant") == 2 == len(stub.asked)


def test_an_answer_that_ended_at_the_limit_of_a_day_that_is_over_says_so(
    make_chat: Maker,
    make_endpoint: Adder,
    make_environment: Any,
    tools_server: str,
    stub: Stub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_endpoint(price_out=1000.0, currency="USD", max_day_cost=0.01)
    stub.replies = [says("", tool_calls=[call("x") | {"function": {"name": "nothing", "arguments": "{}"}}])]

    def counted(*args: Any, **values: Any) -> None:
        turn_used(*args, **values)
        EndpointSpend.objects.all().delete()

    monkeypatch.setattr("webapp.chat.holder.turn_used", counted)
    answer = _answer(make_chat(GPT, environment=make_environment(name="bed").name), "Call tools for ever.")
    assert (answer.state, answer.error["code"]) == ("failed", AT_FAULT)
    assert answer.error["message"] == "The answer reached the limit that the endpoint gpt had when it began."
    assert answer.error["hint"] == "There is room again: choose Regenerate."


def test_one_without_tool_calls_gets_tools_in_words(
    make_chat: Maker, make_endpoint: Adder, make_environment: Any, tools_server: str, stub: Stub
) -> None:
    make_endpoint(tool_format="text", key="")
    calculated = '<tool_call>{"name": "calculator", "arguments": {"expression": "2 + 3"}}</tool_call>'
    stub.replies = [streams(calculated, USED), streams("It is 5.", USED)]
    answer = _answer(make_chat(GPT, environment=make_environment(name="bed").name), "What is 2 + 3?")
    assert [message["content"] for message in answer.messages] == ["", "5", "It is 5."]
    assert "tools" not in stub.asked[0] and "calculator" in stub.asked[0]["messages"][0]["content"]
    assert stub.asked[1]["messages"][-1]["content"].startswith("<tool_response>\n5")
    assert stub.keys == [None, None]


def test_one_that_counts_no_tokens_is_counted_by_words(make_chat: Maker, make_endpoint: Adder, stub: Stub) -> None:
    make_endpoint()
    stub.replies = [streams("red green blue", {"choices": [{"delta": {}, "finish_reason": "stop"}]})]
    assert _answer(make_chat(GPT), "Three colours please").state == "done"
    assert EndpointSpend.objects.get().tokens == 6


def test_a_new_key_is_used_at_once(make_chat: Maker, make_endpoint: Adder, stub: Stub) -> None:
    endpoint = make_endpoint()
    stub.replies = [streams("Yes.", USED)]
    chat = make_chat(GPT)
    _answer(chat, "One")
    endpoint_change(endpoint=endpoint, key="sk-another-0123456789")
    _answer(chat, "Two")
    assert stub.keys == [f"Bearer {KEY}", "Bearer sk-another-0123456789"]


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        ((401, b"{}", {}), "endpoint_key_refused", "HTTP 401"),
        ((429, b"{}", {"Retry-After": "3600"}), "endpoint_busy", "too busy"),
        ((200, b"<html>", {}), "endpoint_fault", "web page"),
        ((200, b"", {}), "endpoint_fault", "empty"),
        (streams("One ", end=""), "endpoint_fault", "broke off in the middle"),
    ],
)
def test_what_it_refuses_is_a_sentence_in_the_chat(
    make_chat: Maker, make_endpoint: Adder, stub: Stub, reply: Any, code: str, words: str
) -> None:
    make_endpoint()
    stub.replies = [reply]
    answer = _answer(make_chat(GPT), "One")
    assert (answer.state, answer.error["code"]) == ("failed", code)
    assert words in answer.error["message"] and KEY not in str(answer.error)


def test_only_the_projects_own_endpoints_can_be_talked_with(
    make_chat: Maker, make_endpoint: Adder, project: Project, stub: Stub
) -> None:
    with pytest.raises(ValidationError, match="There is no endpoint “gpt” in this project"):
        make_chat(GPT)
    endpoint = make_endpoint()
    endpoint.project = Project.objects.create(name="Other", slug="other", team=project.team)
    endpoint.save()
    with pytest.raises(ValidationError, match="There is no endpoint “gpt” in this project"):
        make_chat(GPT)
    endpoint.project = project
    endpoint.save()
    chat = make_chat(GPT)
    endpoint_delete(endpoint=endpoint)
    gone = _answer(chat, "One")
    assert (gone.state, stub.asked) == ("failed", []) and "no endpoint" in gone.error["message"]


def test_the_form_offers_it_and_its_page_shows_what_chats_used(
    make_chat: Maker,
    make_endpoint: Adder,
    project: Project,
    alice: User,
    client_for: Callable[..., Client],
    stub: Stub,
) -> None:
    endpoint, client = make_endpoint(), client_for(alice)
    page = dense(client.get(reverse("chat-new", args=[project.slug])).content.decode())
    assert '<option value="endpoint:gpt">gpt</option>' in page
    made = client.post(reverse("chat-new", args=[project.slug]), {"model": "endpoint:gpt"})
    assert made.status_code == 302
    chat = Chat.objects.get()
    assert chat.contestants == [{"source": "endpoint:gpt", "title": "gpt"}]
    stub.replies = [streams("Yes.", USED)]
    _answer(chat, "Are you <b>there</b>?")
    page = client.get(reverse("endpoint-detail", args=[project.slug, endpoint.pk])).content.decode()
    assert "chat “Are you &lt;b&gt;there&lt;/b&gt;?”" in page
