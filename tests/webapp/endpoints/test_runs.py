"""An endpoint of the project in the model's place: from the form to what the real trainer recorded of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core import serializers
from django.test import Client
from django.urls import reverse

from tests.chat_stub import Stub, says
from tests.webapp.endpoints.conftest import KEY
from training.config import JobConfig
from training.errors import ConfigError
from webapp.common.storage import run_dir
from webapp.endpoints.models import Endpoint, EndpointSpend
from webapp.endpoints.services import endpoint_change, endpoint_delete
from webapp.endpoints.spending import used_on
from webapp.engine.resolve import resolve
from webapp.engine.services import run_create, run_resume
from webapp.engine.supervisor import supervise
from webapp.evaluation.comparison.contestants import Contestant
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.runs.config import config_of
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

TASKS = [{"messages": [{"role": "user", "content": f"What is {n} + 1? Use the calculator."}]} for n in range(3)]


def config_for(**groups: Any) -> JobConfig:
    groups["rollout"] = {"prompts_per_step": 1, "num_generations": 1, "max_turns": 2} | groups.get("rollout", {})
    groups["evaluate"] = {"replays": 0} | groups.get("evaluate", {})
    return JobConfig.model_validate({"kind": "evaluate", "model": {"source": "endpoint:gpt"}} | groups)


@pytest.fixture
def asked(make_dataset: Any, make_environment: Any) -> Callable[..., JobConfig]:
    """``asked(**groups)``: an evaluation of the endpoint `gpt` whose references exist."""
    data, place = make_dataset(TASKS), make_environment()

    def make(**groups: Any) -> JobConfig:
        return config_for(data={"train": data.reference}, environment={"name": place.reference}, **groups)

    return make


@pytest.mark.django_db
def test_a_reference_means_the_endpoint_and_never_its_key(
    project: Project, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig]
) -> None:
    make_endpoint(price_in=1.0, price_out=3.0, currency="USD", max_run_tokens=9000, max_run_cost=2.0, concurrency=3)
    found = resolve(project, asked(endpoint={"max_tokens": 500, "max_cost": 5.0, "patience_s": 7})).config
    place = found.endpoint
    assert (place.name, place.model, place.key_variable) == ("gpt", "gpt-oss", "TILTYARD_ENDPOINT_KEY")
    assert (place.max_tokens, place.max_cost) == (500, 2.0)  # of two limits the lower one
    assert (place.price_in, place.currency, place.concurrency, place.patience_s) == (1.0, "USD", 3, 7)
    assert found.asks_endpoint and not found.needs_model and KEY not in found.model_dump_json()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("over", "option", "words"),
    [
        ({"model": {"source": "endpoint:none"}}, "model.source", "no endpoint “none”"),
        ({"kind": "grpo"}, "model.source", "not trained"),
        ({"endpoint": {"url": "http://x/v1", "model": "m"}}, "endpoint.url", "leave the address empty"),
        ({"endpoint": {"max_cost": 1.0}}, "endpoint.max_cost", "needs prices"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_its_option(
    project: Project,
    make_endpoint: Callable[..., Endpoint],
    asked: Callable[..., JobConfig],
    over: dict[str, Any],
    option: str,
    words: str,
) -> None:
    make_endpoint()
    over = over if over.get("kind") is None else over | {"rollout": {"num_generations": 8, "prompts_per_step": 2}}
    with pytest.raises(ConfigError, match=words) as refused:
        resolve(project, asked(**over))
    assert refused.value.option == option


@pytest.mark.django_db
def test_a_typed_address_cannot_pretend_to_be_one_of_the_project(
    project: Project, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig]
) -> None:
    make_endpoint()
    typed = {"url": "http://x/v1", "model": "m", "name": "gpt", "currency": "USD"}
    found = resolve(project, asked(model={"source": "starter"}, endpoint=typed)).config.endpoint
    assert (found.name, found.currency, found.key_variable) == ("", "", "")


@pytest.mark.django_db
def test_the_form_offers_it_and_its_page_leads_there(
    project: Project, bob: User, make_endpoint: Callable[..., Endpoint], client_for: Callable[..., Client]
) -> None:
    endpoint, client = make_endpoint(), client_for(bob)
    link = f"{reverse('run-new', args=[project.slug])}?kind=evaluate&model=endpoint%3Agpt"
    for page in (
        reverse("endpoint-list", args=[project.slug]),
        reverse("endpoint-detail", args=[project.slug, endpoint.pk]),
    ):
        assert link.replace("&", "&amp;") in client.get(page).content.decode()
    answer = client.get(link)
    form = answer.context["form"]
    assert (form["kind"].value(), form["model.source"].value()) == ("evaluate", "endpoint:gpt")
    assert "gpt · endpoint (gpt-oss)" in answer.content.decode()


@pytest.mark.django_db
def test_the_check_before_a_launch_looks_at_it(
    project: Project, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig], settings: Any
) -> None:
    endpoint = make_endpoint(context_tokens=1000)

    def check(**groups: Any) -> Any:
        outcome = preflight(project, asked(**groups), full=False)
        return next(item for item in outcome.checks if item.title == "Endpoint")

    assert check().remark and "1000 tokens" in check().message
    endpoint_change(endpoint=endpoint, context_tokens=None)
    assert check().remark and "not tested" in check().message
    Endpoint.objects.update(test={"state": "ok", "findings": []})
    assert check().ok
    settings.OUTBOUND_ALLOW = []
    assert check().hard and not check().ok


# --- With the real trainer --------------------------------------------------------------------------------------------
@pytest.fixture
def played(
    project: Project, alice: User, tools_server: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Callable[..., Run]:
    """``played(config)``: a run that a worker has seen through to the end of an attempt."""
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)

    def play(config: JobConfig, run: Run | None = None) -> Run:
        run = run or run_create(project=project, user=alice, name="asks", config=config)
        supervise(run.pk, run.pool)
        run.refresh_from_db()
        return run

    return play


def everything(run: Run) -> str:
    """All files of a run and all rows that tell of it."""
    files = [path.read_bytes().decode("utf-8", "replace") for path in run_dir(run.pk).rglob("*") if path.is_file()]
    rows = [run, *(row for model in (RunEvent, Rollout, MetricPoint, Turn) for row in model.objects.filter(run=run))]
    return "\n".join([*files, serializers.serialize("json", rows)])


CALL = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "1 + 1"}'}}


@pytest.mark.django_db(transaction=True)
def test_an_evaluation_asks_it_and_its_key_is_nowhere(
    project: Project,
    alice: User,
    stub: Stub,
    make_endpoint: Callable[..., Endpoint],
    asked: Callable[..., JobConfig],
    played: Callable[..., Run],
    client_for: Callable[..., Client],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = make_endpoint(price_in=1.0, price_out=2.0, currency="USD", max_day_tokens=1_000_000)
    stub.replies = [says(None, "tool_calls", tool_calls=[CALL]), says(f"The key is {KEY}, and it is 2.")]
    run = played(asked())
    assert (run.state, run.error) == (RunState.SUCCEEDED, None), run.error
    assert set(stub.keys) == {f"Bearer {KEY}"} and stub.asked[0]["model"] == "gpt-oss"
    asks = len(stub.keys)
    rollouts = Rollout.objects.filter(run=run)
    assert rollouts.count() == 3 and set(rollouts.values_list("status", flat=True)) == {"completed"}
    assert sum(rollouts.values_list("calls", flat=True)) == 1
    used = used_on(endpoint)
    assert used.tokens == asks * 107 and used.cost == pytest.approx(asks * (100 + 14) / 1e6)
    (row,) = EndpointSpend.objects.all()
    assert (row.run_id, row.name, row.tokens) == (run.pk, "asks", used.tokens)
    client = client_for(alice)
    page = client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    assert "gpt-oss" in page and f"{used.tokens:,}" in page and "1,000,000" in page
    config = config_of(run)
    assert Contestant(0, run, config).who == "gpt · gpt-oss"
    shown = everything(run) + caplog.text + page
    shown += client.get(f"/api/v1/runs/{run.pk}").content.decode()
    shown += client.get(f"/api/v1/runs/{run.pk}/steps/1/rollouts").content.decode()
    assert "The key is ***" in shown and KEY not in shown and "TILTYARD_ENDPOINT_KEY" in shown


@pytest.mark.django_db(transaction=True)
def test_a_refused_key_pauses_and_the_run_continues_with_another(
    stub: Stub, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig], played: Callable[..., Run]
) -> None:
    endpoint = make_endpoint()
    stub.replies = [(401, json.dumps({"error": {"message": f"Incorrect key {KEY}"}}).encode(), {})]
    run = played(asked())
    assert (run.state, run.error["code"]) == (RunState.PAUSED, "endpoint_key_refused")
    assert KEY not in everything(run)
    stub.replies = [says("It is 2.")]
    endpoint_change(endpoint=endpoint, key="sk-another-key-0123456789")
    run = played(asked(), run_resume(run=run))
    assert run.state == RunState.SUCCEEDED and stub.keys[-1] == "Bearer sk-another-key-0123456789"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("reply", "code"), [((429, b"", {"Retry-After": "99"}), "endpoint_busy"), ((503, b"", {}), "endpoint_away")]
)
def test_one_that_stays_away_pauses_after_its_patience(
    stub: Stub,
    make_endpoint: Callable[..., Endpoint],
    asked: Callable[..., JobConfig],
    played: Callable[..., Run],
    reply: Any,
    code: str,
) -> None:
    make_endpoint()
    stub.replies = [says("It is 2."), reply]
    run = played(asked(endpoint={"patience_s": 1}))
    assert (run.state, run.error["code"]) == (RunState.PAUSED, code)
    assert RunEvent.objects.filter(run=run, kind="held").exists()
    assert Rollout.objects.filter(run=run, reward=None).exclude(status="excluded").count() == 0


@pytest.mark.django_db(transaction=True)
def test_the_limit_of_a_run_pauses_it_and_a_higher_one_lets_it_go_on(
    stub: Stub, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig], played: Callable[..., Run]
) -> None:
    endpoint = make_endpoint(max_run_tokens=200)
    run = played(asked())
    assert (run.state, run.error["code"]) == (RunState.PAUSED, "budget_spent") and "200" in run.error["message"]
    endpoint_change(endpoint=endpoint, max_run_tokens=5000)
    run = played(asked(), run_resume(run=run))
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2), run.error
    assert used_on(endpoint).tokens == 107 * len(stub.keys)  # both attempts, and what was cut off


@pytest.mark.django_db(transaction=True)
def test_the_limit_of_a_day_pauses_runs_at_work_and_those_that_begin(
    stub: Stub, make_endpoint: Callable[..., Endpoint], asked: Callable[..., JobConfig], played: Callable[..., Run]
) -> None:
    endpoint = make_endpoint(max_day_tokens=150)
    stub.delay_s = 1.5
    run = played(asked())
    assert (run.state, run.error["code"]) == (RunState.PAUSED, "budget_spent"), run.error
    assert "today" in run.error["message"] and len(stub.keys) < 4
    asks = len(stub.keys)
    run = played(asked(), run_resume(run=run))
    assert (run.state, run.attempt) == (RunState.PAUSED, 2) and len(stub.keys) == asks  # it is not asked at all
    endpoint_change(endpoint=endpoint, max_day_tokens=None)
    stub.delay_s = 0
    assert played(asked(), run_resume(run=run)).state == RunState.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_records_stay_when_it_is_deleted_and_a_paused_run_says_so(
    project: Project,
    alice: User,
    stub: Stub,
    make_endpoint: Callable[..., Endpoint],
    asked: Callable[..., JobConfig],
    played: Callable[..., Run],
    client_for: Callable[..., Client],
) -> None:
    endpoint = make_endpoint(max_run_tokens=200)
    run = played(asked())
    endpoint_delete(endpoint=endpoint)
    page = client_for(alice).get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    assert "gpt-oss" in page and MetricPoint.objects.filter(run=run, name="endpoint/tokens").exists()
    run = played(asked(), run_resume(run=run))
    assert run.state == RunState.FAILED and "no endpoint “gpt”" in run.error["message"]
