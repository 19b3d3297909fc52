"""Both sides of each limit of an endpoint, what is counted for it, and amounts as text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from training.config import EndpointConfig, JobConfig
from training.errors import BudgetSpent
from webapp.endpoints.models import Endpoint
from webapp.endpoints.selectors import (
    day_bars,
    days_of,
    endpoint_named,
    limit_text,
    money,
    price_text,
    row_of,
    run_spend,
    runs_there,
    uses_of,
    with_use,
)
from webapp.endpoints.services import (
    _clean_key,
    _set_values,
    endpoint_create,
    endpoint_delete,
    key_env,
)
from webapp.endpoints.spending import (
    Used,
    chat_left,
    day_limit,
    day_over,
    endpoint_days,
    run_used,
    spend_add,
    turn_used,
    used_by_chat,
    used_by_run,
    used_on,
)
from webapp.people.teams.models import Project, User

Builder = Callable[..., Any]
CHAT, OTHER_CHAT = UUID(int=1), UUID(int=2)


def problems(**values: Any) -> set[str]:
    """The fields that an endpoint with these values has wrong."""
    endpoint = Endpoint(url="https://93.184.216.34/v1", model="m", concurrency=8, timeout_s=120.0)
    try:
        _set_values(endpoint, values)
    except ValidationError as exc:
        return set(exc.message_dict)
    return set()


@pytest.mark.parametrize(
    ("field", "below", "least", "most", "above"),
    [
        ("context_tokens", 0, 1, 100_000_000, 100_000_001),
        ("concurrency", 0, 1, 256, 257),
        ("timeout_s", 0.99, 1.0, 3600.0, 3600.1),
        ("price_in", -0.01, 0.0, 1_000_000.0, 1_000_000.1),
        ("price_out", -0.01, 0.0, 1_000_000.0, 1_000_000.1),
        ("max_run_tokens", 0, 1, 10**12, 10**12 + 1),
        ("max_day_tokens", 0, 1, 10**12, 10**12 + 1),
        ("max_run_cost", 9e-10, 1e-9, 1_000_000.0, 1_000_000.1),
        ("max_day_cost", 9e-10, 1e-9, 1_000_000.0, 1_000_000.1),
    ],
)
def test_a_number_has_a_least_and_a_largest_value(
    field: str, below: float, least: float, most: float, above: float
) -> None:
    prices = {} if field.startswith("price") else {"price_in": 1.0}
    found = [problems(**prices, **{field: value}) for value in (below, least, most, above)]
    assert found == [{field}, set(), set(), {field}]
    assert problems(**prices, **{field: float("nan")}) == {field}


def test_a_text_has_a_largest_length_and_a_currency_three_letters() -> None:
    assert [problems(model="m" * length) for length in (200, 201)] == [set(), {"model"}]
    start = "https://93.184.216.34/"
    assert [problems(url=start + "v" * (length - len(start))) for length in (500, 501)] == [set(), {"url"}]
    assert problems(model="a\x00") == {"model"}
    assert [problems(currency=text) for text in ("", "usd", "us", "usdt", "u5d")] == [
        *(set(), set()),
        *({"currency"},) * 3,
    ]
    assert [len(_clean_key(f" {'k' * length} ")) for length in (0, 500)] == [0, 500]
    with pytest.raises(ValidationError, match="500 at most"):
        _clean_key("k" * 501)


def test_a_limit_on_cost_needs_one_price() -> None:
    assert problems(max_run_cost=1.0) == {"max_run_cost"} and problems(max_day_cost=1.0) == {"max_day_cost"}
    for price in ("price_in", "price_out"):
        assert problems(max_run_cost=1.0, max_day_cost=1.0, **{price: 0.5}) == set()


@pytest.mark.parametrize(
    ("value", "currency", "text"),
    [
        (None, "USD", "no price set"),
        (0.0, "USD", "0.00 USD"),
        (0.099, "USD", "0.099 USD"),
        (0.0996, "", "0.1"),
        (0.1, "USD", "0.10 USD"),
        (1234.5, "EUR", "1,234.50 EUR"),
        (0.000123, "", "0.00012"),
    ],
)
def test_an_amount_is_shown_with_as_many_digits_as_it_needs(value: float | None, currency: str, text: str) -> None:
    assert money(value, currency) == text


def test_prices_and_limits_are_shown_as_text() -> None:
    assert price_text(Endpoint()) == "no price set"
    assert price_text(Endpoint(price_in=0.5, currency="USD")) == "0.50 USD read, 0.00 USD written"
    assert price_text(Endpoint(price_out=2.0)) == "0.00 read, 2.00 written"
    assert limit_text(Endpoint()) == "no limit"
    assert limit_text(Endpoint(max_run_tokens=5000)) == "5,000 tokens"
    assert limit_text(Endpoint(max_run_tokens=5000, max_run_cost=2.0, currency="USD")) == "5,000 tokens · 2.00 USD"


def made(project: Project, name: str = "gpt", **over: Any) -> Endpoint:
    """An endpoint that is never asked."""
    return Endpoint.objects.create(project=project, name=name, url="https://93.184.216.34/v1", model="m", **over)


def test_a_project_has_at_most_a_hundred_endpoints(project: Project, elsewhere: Project, alice: User) -> None:
    Endpoint.objects.bulk_create(
        Endpoint(project=where, name=f"e{number}", url="https://93.184.216.34/v1", model="m")
        for where, count in ((project, 99), (elsewhere, 50))
        for number in range(count)
    )
    values = {"url": "https://93.184.216.34/v1", "model": "m", "concurrency": 1, "timeout_s": 1.0}
    endpoint_create(project=project, user=alice, name="last", **values)
    with pytest.raises(ValidationError, match="reached its limit"):
        endpoint_create(project=project, user=alice, name="more", **values)


@pytest.mark.parametrize(
    ("state", "gone"),
    [("queued", False), ("stopping", False), ("running", False), ("paused", True), ("draft", True), ("failed", True)],
)
def test_only_a_run_that_is_queued_or_at_work_keeps_it(
    state: str, gone: bool, project: Project, elsewhere: Project, make_run: Builder
) -> None:
    endpoint, config = made(project), {"model": {"source": "endpoint:gpt"}}
    make_run(config=config, state="running", project=elsewhere)
    make_run(config={"model": {"source": "endpoint:other"}}, state="running")
    make_run(config=config, state=state, name="night")
    if gone:
        endpoint_delete(endpoint=endpoint)
    else:
        with pytest.raises(ValidationError, match=r"A queued or active run uses it: night\. Stop it first\."):
            endpoint_delete(endpoint=endpoint)
    assert Endpoint.objects.exists() is not gone


def test_a_key_goes_to_the_endpoint_of_the_project_at_its_address(make_endpoint: Builder, elsewhere: Project) -> None:
    endpoint = make_endpoint(key="sk-0123456789")
    place = EndpointConfig(name="gpt", url=endpoint.url, key_variable="TILTYARD_ENDPOINT_KEY")
    assert key_env(endpoint.project, place) == {
        "TILTYARD_ENDPOINT_KEY": "sk-0123456789",
        "TILTYARD_ENDPOINT_KEY_HOST": "127.0.0.1",
    }
    for changed in ({"name": "other"}, {"url": "https://93.184.216.34/v1"}, {"key_variable": ""}):
        assert key_env(endpoint.project, place.model_copy(update=changed)) == {}
    assert key_env(elsewhere, place) == {} and endpoint_named(elsewhere, "gpt") is None
    assert endpoint_named(endpoint.project, "gpt") == endpoint


def used(endpoint: Endpoint, tokens: int, cost: float | None = None, days_ago: int = 0, **of: Any) -> None:
    spend_add(endpoint, tokens=tokens, cost=cost, at=timezone.now() - timedelta(days=days_ago), **of)


def test_what_a_run_used_is_of_the_endpoint_of_its_project(
    project: Project, elsewhere: Project, make_run: Builder
) -> None:
    mine, other, theirs, run = made(project), made(project, "a"), made(elsewhere), make_run(name="night")
    run_used(
        project_id=project.pk, name="gpt", run_id=run.pk, run_name="night", tokens=70, cost=None, at=timezone.now()
    )
    assert [used_by_run(each, run.pk).tokens for each in (mine, other, theirs)] == [70, 0, 0]
    assert [used_on(each).tokens for each in (mine, other, theirs)] == [70, 0, 0]
    assert used_by_run(mine, UUID(int=9)) == Used()
    turn_used(mine, read=3, written=4, chat_id=CHAT, title="t" * 90)
    assert (used_by_chat(mine, CHAT).tokens, used_by_chat(mine, OTHER_CHAT).tokens, used_on(mine).tokens) == (7, 0, 77)
    assert {row.name for day in days_of(mine) for row in day.users} == {"night", "t" * 80}
    assert runs_there(project, days_of(mine)) == {run.pk} and runs_there(elsewhere, days_of(mine)) == set()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_day_tokens": 100}, "100 tokens of the endpoint gpt today"),
        ({"max_day_cost": 0.5, "price_in": 1.0}, "has spent 0.5"),
        ({"max_day_tokens": 101, "max_day_cost": 0.51, "price_in": 1.0}, ""),
        ({}, ""),
    ],
)
def test_a_limit_of_a_day_is_reached_by_as_much_as_it_names(
    limits: dict[str, Any], words: str, project: Project, elsewhere: Project
) -> None:
    endpoint = made(project, **limits)
    made(elsewhere)
    used(endpoint, 60, 0.3, run_id=UUID(int=5))
    used(endpoint, 40, 0.2, chat_id=CHAT)
    used(endpoint, 1000, 9.0, days_ago=1)
    for found in (day_limit(endpoint), day_over(project.pk, "gpt")):
        assert (words in found.message) if words else found is None  # type: ignore[union-attr]
    assert day_over(elsewhere.pk, "gpt") is None and day_over(project.pk, "absent") is None
    assert day_over(project.pk, "") is None
    if words:
        with pytest.raises(BudgetSpent) as over:
            chat_left(endpoint, OTHER_CHAT)
        assert over.value.hint == "Raise the endpoint's limit for a day, or continue tomorrow."


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_run_tokens": 40}, "This chat has used 40 tokens"),
        ({"max_run_cost": 0.2, "price_in": 1.0}, "This chat has spent 0.2"),
        ({"max_run_tokens": 41, "max_run_cost": 0.21, "price_in": 1.0}, ""),
    ],
)
def test_a_limit_of_a_chat_is_reached_by_as_much_as_it_names(
    limits: dict[str, Any], words: str, project: Project
) -> None:
    endpoint = made(project, **limits)
    used(endpoint, 40, 0.2, chat_id=CHAT)
    used(endpoint, 500, 5.0, chat_id=OTHER_CHAT)
    if not words:
        assert chat_left(endpoint, CHAT)[:2] == (1, pytest.approx(0.01))
        return
    with pytest.raises(BudgetSpent, match=words) as over:
        chat_left(endpoint, CHAT)
    assert over.value.hint == "Raise the endpoint's limit for a run, or start another chat."


def test_without_a_limit_a_chat_may_use_any_amount(project: Project) -> None:
    assert chat_left(made(project), CHAT)[:2] == (0, None)


def test_endpoints_with_a_limit_of_a_day_are_shown_with_their_use_of_today(
    project: Project, elsewhere: Project
) -> None:
    second = made(project, "b", max_day_tokens=1000)
    first = made(project, "a", max_day_cost=2.0, price_in=1.0, currency="USD")
    made(project, "c", max_run_tokens=5)
    made(elsewhere, "d", max_day_tokens=1)
    used(first, 10, 0.25, run_id=UUID(int=5))
    used(first, 10, 0.5, chat_id=CHAT)
    used(second, 1500, None, days_ago=1)
    found = endpoint_days([project.pk])
    assert [(line.endpoint.name, line.cost, line.tokens) for line in found.pop(project.pk)] == [
        ("a", "0.75 / 2 USD", ""),
        ("b", "", "0 / 1,000"),
    ]
    assert found == {}


def test_a_row_sums_today_and_all_days(project: Project) -> None:
    endpoint = made(project, price_in=1.0)
    for days_ago, tokens in ((0, 5), (0, 7), (1, 100)):
        used(endpoint, tokens, tokens / 10, days_ago=days_ago, run_id=UUID(int=tokens))
    for row in (row_of(endpoint), row_of(with_use(Endpoint.objects.all())[0])):
        assert (row.today.tokens, row.today.cost) == (12, pytest.approx(1.2))
        assert (row.total.tokens, row.total.cost, row.has_key) == (112, pytest.approx(11.2), False)
    assert [day.used.tokens for day in days_of(endpoint)] == [12, 100]
    for days_ago in range(2, 20):
        used(endpoint, 1, days_ago=days_ago)
    assert [day.day for day in days_of(endpoint)] == [
        timezone.localdate() - timedelta(days=number) for number in range(14)
    ]
    assert used_on(endpoint, date(2020, 1, 1)) == Used()


def test_the_newest_runs_that_ask_it_are_listed(project: Project, elsewhere: Project, make_run: Builder) -> None:
    endpoint, config = made(project), {"model": {"source": "endpoint:gpt"}}
    runs = [make_run(config=config) for _number in range(21)]
    make_run(config=config, project=elsewhere)
    found, count = uses_of(endpoint)
    assert (found, count) == (runs[:0:-1], 21)


def test_only_an_editor_is_offered_changes(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    places = [reverse("endpoint-list", args=[project.slug])]
    new = f'href="{reverse("endpoint-new", args=[project.slug])}"'
    assert [new in client_for(who).get(places[0]).content.decode() for who in (bob, rita)] == [True, False]
    endpoint = made(project)
    args = [project.slug, endpoint.pk]
    places.append(reverse("endpoint-detail", args=args))
    acts = [reverse(name, args=args) for name in ("endpoint-edit", "endpoint-test", "endpoint-delete")]
    for who, offers in ((bob, True), (rita, False)):
        pages = [client_for(who).get(place).content.decode() for place in places]
        assert (new in pages[0], acts[0] in pages[0] + pages[1]) == (offers, offers)
        assert [act in pages[1] for act in acts[1:]] == [offers, offers]
    assert [client_for(rita).post(act).status_code for act in acts] == [403, 403, 403]
    said = client_for(bob).post(acts[2], follow=True).content.decode()
    assert "gpt is deleted, and its key with it." in said and not Endpoint.objects.exists()


def test_a_run_asks_with_the_values_of_its_endpoint() -> None:
    plain = Endpoint(name="e", url="u", model="m", timeout_s=9.0)
    rest = {"name": "e", "url": "u", "model": "m", "tool_format": "native", "concurrency": 8, "timeout_s": 9.0}
    money = {"price_in": 0.0, "price_out": 0.0, "currency": "", "max_tokens": 0, "max_cost": 0.0}
    assert plain.job_values() == rest | money
    limits = {"price_in": 0.5, "price_out": 2.0, "currency": "USD"}
    full = Endpoint(name="e", url="u", model="m", timeout_s=9.0, max_run_tokens=7, max_run_cost=1.5, **limits)
    assert full.job_values() == rest | limits | {"max_tokens": 7, "max_cost": 1.5}


def test_the_page_of_a_run_shows_its_use_against_the_limits(project: Project, make_run: Builder) -> None:
    endpoint = made(project, price_in=1.0, currency="USD", max_day_tokens=50, max_day_cost=0.2)
    place = endpoint.job_values() | {"max_tokens": 200, "max_cost": 0.0}
    config = {"kind": "evaluate", "model": {"source": "endpoint:gpt"}, "endpoint": place}
    run = make_run(config=JobConfig.model_validate(config), state="running")
    assert [bar.share for bar in day_bars(endpoint)] == [0.0, 0.0], "nothing was used yet"
    used(endpoint, 100, 0.5, run_id=run.pk)
    found = run_spend(run)
    assert found is not None and (found.name, found.model, found.endpoint, found.live, found.priced) == (
        *("gpt", "m", endpoint),
        *(True, True),
    )
    assert [(bar.used, bar.limit, bar.share) for bar in found.bars] == [
        ("100", "200", 0.5),
        ("0.50 USD", "", None),
        ("100", "50", 1.0),
        ("0.50 USD", "0.20 USD", 1.0),
    ]
    run.state = "failed"
    endpoint.delete()
    found = run_spend(run)
    assert found is not None and (found.endpoint, found.bars, found.live) == (None, [], False)
    assert run_spend(make_run()) is None
    unnamed = JobConfig.model_validate({"kind": "evaluate", "endpoint": {"url": "http://192.0.2.7/v1", "model": "m"}})
    assert run_spend(make_run(config=unnamed)) is None


def test_the_form_of_a_change_says_what_stays(
    project: Project, bob: User, make_run: Builder, make_endpoint: Builder, client_for: Callable[..., Client]
) -> None:
    endpoint, client = make_endpoint(), client_for(bob)
    address = reverse("endpoint-edit", args=[project.slug, endpoint.pk])
    page = client.get(address).content.decode()
    assert 'name="name"' not in page and 'name="remove_key"' in page
    assert "There is a key. Leave this empty to keep it; what you enter replaces it." in page
    refused = client.post(address, {"url": endpoint.url, "model": "", "concurrency": "1", "timeout_s": "1"})
    assert refused.status_code == 422 and refused.context["item"].model == "gpt-oss"
    make_run(config={"model": {"source": "endpoint:gpt"}}, state="running", name="night")
    delete = reverse("endpoint-delete", args=[project.slug, endpoint.pk])
    assert "A queued or active run uses it: night." in client.post(delete, follow=True).content.decode()
