"""Keeping an episode: the row and the test case are made from what the server heard, by value."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.urls import reverse

from tests.chaos.services import wait_until
from tests.webapp.environments.playground.conftest import CALL, TASK
from tests.webapp.live.conftest import in_db
from tests.working import done
from training.algorithms.lessons import encode_rows
from training.data.reader import load_rows
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.versions import dataset_append
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.rewards.cases import cases_under, reward_case_create
from webapp.rewards.models import RewardCase

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def environment(make_environment: Any, tools_server: str) -> Environment:
    found: Environment = make_environment(url=tools_server, name="tools")
    return found


@pytest.fixture
async def played(environment: Environment, bob: Any, sit: Any) -> Any:
    """Bob's tab after one call and the right answer."""
    seat = await sit(environment, bob)
    await seat.reset(TASK, seed=3)
    await seat.step("", CALL)
    await seat.step("17 times 23 is 391.")
    return seat


def _checked(name: str) -> Dataset:
    """The newest version under a name, after its check."""
    newest = Dataset.objects.filter(name=name).order_by("-version").first()
    assert newest is not None
    return done(newest)


MESSAGES = [
    {"role": "user", "content": "What is 17 * 23?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0_0", "name": CALL[0], "arguments": CALL[1]}]},
    {"role": "tool", "content": "391", "tool_call_id": "call_0_0", "name": "calculator"},
    {"role": "assistant", "content": "17 times 23 is 391."},
]


async def test_an_episode_becomes_the_next_version_of_a_dataset(
    played: Any, make_dataset: Callable[..., Dataset], bob: Any
) -> None:
    old = await in_db(make_dataset)(name="demos")
    saved = await played.ask(type="save_row", dataset="demos")
    assert saved["type"] == "saved" and saved["label"] == "demos@2"
    made = await in_db(_checked)("demos")
    assert (made.version, made.state, made.rows, made.created_by_id) == (2, DatasetState.READY, 4, bob.pk)
    assert saved["url"] == reverse("dataset-detail", args=["joust", made.pk])
    lines = [json.loads(line) for line in made.rows_path.read_text().splitlines()]
    assert lines[:3] == [json.loads(line) for line in old.rows_path.read_text().splitlines()]
    tools = lines[3].pop("tools")
    assert [tool["function"]["name"] for tool in tools].count("calculator") == 1
    provenance = lines[3].pop("provenance")
    assert lines[3] == {"messages": MESSAGES}
    assert provenance["environment"] == "tools" and provenance["task"] == TASK and provenance["seed"] == 3
    assert provenance["reward"] == 1.0 and provenance["done"] is True
    assert await in_db(lambda: Dataset.objects.get(pk=old.pk).rows)() == 3


async def test_sft_trains_on_the_row(played: Any, tiny_tokenizer: Any) -> None:
    await played.ask(type="save_row", dataset="new one")
    made = await in_db(_checked)("new one")
    rows = load_rows(made.rows_path)
    encoded = encode_rows(rows, tiny_tokenizer, 100_000)
    assert not encoded.left_out
    learned = tiny_tokenizer.decode([label for label in encoded.examples[0]["labels"] if label >= 0])
    assert "17 * 23" in learned and "17 times 23 is 391." in learned and "What is" not in learned


async def test_nothing_played_is_not_saved(environment: Environment, bob: Any, sit: Any) -> None:
    seat = await sit(environment, bob)
    assert (await seat.ask(type="save_row", dataset="demos"))["code"] == "no_episode"
    await seat.reset(TASK)
    refused = await seat.ask(type="save_row", dataset="demos")
    assert refused["type"] == "problem" and refused["of"] == "save_row" and "Nothing was played" in refused["title"]
    refused = await seat.ask(type="save_case", name="c", expected={}, total=[0, 1])
    assert refused["of"] == "save_case" and "Nothing was played" in refused["title"]
    assert not await in_db(Dataset.objects.exists)() and not await in_db(RewardCase.objects.exists)()


@pytest.mark.parametrize("name", ["", "../x", "a" * 120, "<b>"])
async def test_a_bad_name_is_a_sentence(played: Any, name: str) -> None:
    refused = await played.ask(type="save_row", dataset=name)
    assert refused["code"] == "invalid" and "letters" in refused["title"]


async def test_a_version_that_is_being_checked_is_waited_for(played: Any) -> None:
    assert (await played.ask(type="save_row", dataset="demos"))["label"] == "demos@1"
    refused = await played.ask(type="save_row", dataset="demos")
    assert refused["code"] == "invalid" and "demos@1 is still being checked" in refused["title"]


def test_a_rejected_version_is_passed_over(project: Project, make_dataset: Callable[..., Dataset], bob: Any) -> None:
    make_dataset(name="d", version=1)
    make_dataset(name="d", version=2, state=DatasetState.REJECTED)
    made = dataset_append(project=project, user=bob, name="d", rows=[{"messages": MESSAGES}], file_name="x.jsonl")
    assert made.version == 3 and len(made.upload_path.read_text().splitlines()) == 4
    make_dataset(name="d", version=4, state=DatasetState.NEEDS_CHOICE)
    with pytest.raises(ValidationError, match="bad rows"):
        dataset_append(project=project, user=bob, name="d", rows=[{"messages": MESSAGES}], file_name="x.jsonl")


def test_of_two_that_add_at_once_none_is_lost(
    project: Project, make_dataset: Callable[..., Dataset], bob: Any, monkeypatch: Any
) -> None:
    """The other one finishes between our copy and our lock: we start again from what they made."""
    from webapp.datasets import versions

    make_dataset(name="d", version=1)
    real, raced = versions._insert_if_newest, []

    def late(dataset: Dataset, base: Dataset | None) -> bool:
        if not raced:
            raced.append(make_dataset([{"messages": MESSAGES}] * 7, name="d", version=2))
        return real(dataset, base)

    monkeypatch.setattr(versions, "_insert_if_newest", late)
    made = dataset_append(project=project, user=bob, name="d", rows=[{"messages": MESSAGES}], file_name="x.jsonl")
    assert made.version == 3 and len(made.upload_path.read_text().splitlines()) == 8


def _waits_for_us() -> bool:
    """Whether another connection waits for a lock that this one holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return bool(cursor.fetchone()[0])


def test_a_row_that_is_added_while_a_version_is_written_follows_that_version(
    project: Project, make_dataset: Callable[..., Dataset], bob: Any
) -> None:
    """Without the project's lock both begin from the same newest version, and the later one gets an error."""
    rows = [{"messages": MESSAGES}]

    def add() -> Dataset:
        try:
            return dataset_append(project=project, user=bob, name="d", rows=rows, file_name="x.jsonl")
        finally:
            connection.close()

    make_dataset(name="d", version=1)
    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            Project.objects.select_for_update().get(pk=project.pk)
            make_dataset(rows * 7, name="d", version=2)
            added = threads.submit(add)
            wait_until(_waits_for_us, what="the other one waits for the project")
        made = added.result(20)
    assert made.version == 3 and len(made.upload_path.read_text().splitlines()) == 8


@pytest.mark.parametrize("row", [{"messages": []}, {"messages": [{"role": "user", "content": "\x00"}]}, {}])
def test_a_row_that_no_check_would_take_is_refused(project: Project, bob: Any, row: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="cannot hold this row"):
        dataset_append(project=project, user=bob, name="d", rows=[row], file_name="x.jsonl")
    assert not Dataset.objects.exists()


async def test_a_row_is_opened_before_its_first_answer(
    environment: Environment, bob: Any, sit: Any, make_dataset: Callable[..., Dataset]
) -> None:
    row = {"messages": [*TASK["conversation"], *MESSAGES[1:]], "answer": TASK["answer"]}
    dataset = await in_db(make_dataset)([{"messages": [{"role": "user", "content": "other"}]}, row], name="rows")
    seat = await sit(environment, bob)
    opened = await seat.ask(type="reset", seed=0, source={"kind": "row", "dataset": str(dataset.pk), "row": 2})
    assert opened["messages"] == TASK["conversation"]
    assert (await seat.step("", CALL))["type"] == "answer"
    assert (await seat.step("391"))["state"]["reward"] == 1.0
    gone = await seat.ask(type="reset", seed=0, source={"kind": "row", "dataset": str(dataset.pk), "row": 3})
    assert gone["of"] == "reset" and gone["title"] == "rows@1 has rows 1 to 2."


async def test_another_project_s_dataset_is_not_played(
    environment: Environment, bob: Any, sit: Any, charlie: Any, make_dataset: Callable[..., Dataset]
) -> None:
    elsewhere = await in_db(lambda: Project.objects.get(slug="elsewhere"))()
    dataset = await in_db(make_dataset)(project=elsewhere)
    seat = await sit(environment, bob)
    refused = await seat.ask(type="reset", seed=0, source={"kind": "row", "dataset": str(dataset.pk), "row": 1})
    assert refused["code"] == "invalid" and not refused["state"]["open"]


async def test_a_test_case_is_scored_by_value(played: Any, make_reward_spec: Any, project: Project) -> None:
    saved = await played.ask(
        type="save_case", name="seventeen", expected={"task_success": [1, 1], "coherence": [2, 3]}, total=[0.9, 1]
    )
    assert saved["type"] == "saved" and saved["kind"] == "case"
    case = await in_db(lambda: RewardCase.objects.get())()
    assert (case.prompt_length, case.env_reward, case.environment, case.truncated) == (1, 1.0, "tools", False)
    assert case.messages == MESSAGES and case.row == TASK
    spec = await in_db(make_reward_spec)(components=[{"name": "task_success", "weight": 0.5, "params": {}}])
    view = (await in_db(cases_under)(spec, User(pk=1)))[0]
    assert [(m.value, m.expected, m.passed) for m in view.marks] == [(1.0, [1.0, 1.0], True)]
    assert (view.total.value, view.total.passed, view.passed) == (0.5, False, False)
    again = await played.ask(type="save_case", name="seventeen", expected={}, total=[0, 1])
    assert again["code"] == "invalid" and "exists already" in again["title"]


def _case(project: Project, **over: Any) -> RewardCase:
    fields = {"name": "c", "messages": MESSAGES, "prompt_length": 1, "expected": {"task_success": [0, 1]}}
    return reward_case_create(case=RewardCase(**(fields | over)), project=project, user=None)


def test_a_component_that_cannot_be_computed_is_missing(project: Project, make_reward_spec: Any) -> None:
    _case(project, env_reward=None, total=[0, 1])
    spec = make_reward_spec(components=[{"name": "task_success", "weight": 1.0, "params": {}}])
    view = cases_under(spec, User(pk=1))[0]
    assert (
        view.marks[0].value is None
        and view.marks[0].passed is False
        and "has no value for this episode" in view.marks[0].reason
    )
    assert view.total.value is None and view.total.passed is False


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"expected": {}, "total": None}, "Enter what you expect"),
        ({"expected": {"no_such": [0, 1]}}, "no reward component"),
        ({"expected": {"task_success": [1, 0]}}, "lower number"),
        ({"messages": [{"role": "user", "content": "x" * 1_100_000}]}, "larger than 1 MB"),
        ({"name": "../x"}, "letters"),
    ],
)
def test_a_bad_case_is_refused_with_a_sentence(project: Project, over: dict[str, Any], sentence: str) -> None:
    _case(project)
    with pytest.raises(ValidationError, match=sentence):
        _case(project, **({"name": "other"} | over))


def test_the_spec_s_page_shows_cases_and_editors_delete_them(
    project: Project, make_reward_spec: Any, bob: Any, rita: Any, charlie: Any, client_for: Any
) -> None:
    case = _case(project, env_reward=0.25, name="quarter", total=[0.5, 1])
    spec = make_reward_spec(components=[{"name": "task_success", "weight": 1.0, "params": {}}])
    page = reverse("reward-detail", args=[project.slug, spec.pk])
    text = client_for(rita).get(page).content.decode()
    assert "quarter" in text and "0.250" in text and "as expected" in text and "not as expected" in text
    delete = reverse("reward-case-delete", args=[project.slug, case.pk])
    assert delete not in text and client_for(rita).post(delete).status_code == 403
    assert client_for(charlie).post(delete).status_code == 404 and client_for(bob).get(delete).status_code == 405
    answer = client_for(bob).post(delete, {"spec": str(spec.pk)})
    assert answer["Location"] == page and not RewardCase.objects.exists()


def test_the_page_and_its_preview(
    project: Project,
    environment: Environment,
    make_dataset: Any,
    bob: Any,
    rita: Any,
    charlie: Any,
    client_for: Any,
    django_assert_max_num_queries: Any,
    tmp_path: Path,
) -> None:
    dataset = make_dataset(name="mine")
    url = reverse("environment-play", args=[project.slug, environment.pk])
    client = client_for(bob)
    with django_assert_max_num_queries(14):
        text = client.get(url).content.decode()
    assert f"/ws/environments/{environment.pk}/play/" in text and "mine@1" in text
    assert client_for(rita).get(url).status_code == 403 and client_for(charlie).get(url).status_code == 404
    assert client_for(None).get(url).status_code == 302 and client.post(url).status_code == 405
    row = reverse("environment-play-row", args=[project.slug, environment.pk])
    found = client.get(row, {"dataset": str(dataset.pk), "row": "2"}).json()
    assert found["messages"] == [{"role": "user", "content": "What is 2 + 3?"}] and found["rows"] == 3
    for bad in ({"dataset": "x"}, {"dataset": str(dataset.pk), "row": "99"}, {"dataset": str(dataset.pk), "row": "-1"}):
        assert client.get(row, bad).status_code == 422
    assert client.get(row, {"dataset": str(environment.pk)}).status_code == 404
