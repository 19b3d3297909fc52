"""Lists over the API: their cursors lose and repeat no row, their filters choose, and which come whole has a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from tests.webapp.api.answers import operations, schema
from webapp.chat.models import Chat
from webapp.datasets.models import Dataset
from webapp.endpoints.models import Endpoint
from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.evaluation.suites.models import Suite, SuiteVersion
from webapp.launch.models import Sweep, SweepRun
from webapp.people.notifications.models import Event, Notification
from webapp.people.teams.models import ApiToken, Project, User
from webapp.reading.inspector.models import SavedView
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import ModelPush, RegisteredModel

V1 = "/api/v1"
IN = "/projects/{slug}"
PLACE = {"page", "per_page", "cursor"}
DATES = {"created_after", "created_before"}
NAMES = DATES | {"q", "name"}
# What chooses among the rows of each list that is paged by a cursor.
LISTS: dict[str, set[str]] = {
    "/projects": NAMES,
    "/people": DATES | {"q"},
    "/notifications": DATES | {"project", "unread"},
    IN + "/runs": NAMES | {"state", "kind", "owner", "tag", "spec", "sweep", "starred", "archived", "sort"},
    **{
        IN + "/" + name: NAMES
        for name in [
            "datasets",
            "rewards",
            "reward-cases",
            "environments",
            "endpoints",
            "models",
            "suites",
            "sweeps",
            "comparisons",
            "vote-rounds",
            "rollout-views",
            "tokens",
            "machines",
        ]
    },
    IN + "/chats": DATES | {"q"},
    "/comparisons/{comparison_id}/comments": DATES,
    "/comparisons/{comparison_id}/links": DATES,
    "/datasets/{dataset_id}/exports": DATES,
    "/environments/{environment_id}/dataset-orders": NAMES,
    "/models/{model_id}/pushes": DATES,
    "/runs/{run_id}/exports": DATES,
}
# Lists without a cursor, and why they need none.
WHOLE = {
    IN + "/members": "the people of one team, each once",
    "/teams": "the teams of one person",
    IN + "/channels": "a project has twenty at most",
    IN + "/pins": "a project's page has twelve at most",
    IN + "/compare": "the evaluations that were asked for, computed",
    IN + "/rollouts": "continues from a place of its own, `after`: it orders by any measure of a rollout",
    IN + "/rollouts/causes": "the eight most frequent, with how many are not listed",
    IN + "/rollouts/save": "one line for each kind of thing that can be saved",
    "/limits": "two numbers for each project",
    "/usage": "sums of the days that were asked for",
    "/runs/{run_id}/rollouts": "as of a project",
    "/runs/{run_id}/rollouts/causes": "as of a project",
    "/runs/{run_id}/rollouts/save": "as of a project",
    "/runs/{run_id}/advisories": "the fifty gravest",
    "/runs/{run_id}/events": "continues after a `seq`, which a script keeps anyway",
    "/runs/{run_id}/steps/{step}/rollouts": "the rollouts of one step keep their places, so its pages do not shift",
    "/runs/{run_id}/tasks": "a map that is computed, forty lines a page",
    "/rollouts/{rollout_id}/turns": "continues from the number of a turn, which never changes",
    "/rollouts/{rollout_id}/branches": "a rollout has forty at most, and the newest sixty-four that runs played",
}


def _answer(operation: dict[str, Any]) -> dict[str, Any]:
    shape = operation["responses"][200].get("content", {}).get("application/json", {}).get("schema", {})
    return schema()["components"]["schemas"][shape["$ref"].rpartition("/")[2]] if "$ref" in shape else shape


def test_every_list_has_a_cursor_or_a_reason_to_come_whole() -> None:
    paged, whole = {}, set()
    for (method, path), operation in operations().items():
        shape, path = _answer(operation) if method == "GET" else {}, path.removeprefix(V1)
        fields = shape.get("properties", {})
        if shape.get("type") != "array" and fields.get("items", {}).get("type") != "array":
            continue
        asked = {item["name"] for item in operation.get("parameters", []) if item["in"] == "query"}
        if asked >= PLACE and {"items", "page", "pages", "total", "next"} <= set(fields):
            paged[path] = asked - PLACE
        else:
            assert "cursor" not in asked, f"{path} takes a cursor that it never gives"
            whole.add(path)
    assert paged == LISTS
    assert whole == set(WHOLE)


# --- Walking --------------------------------------------------------------------------------------------------------
def _walk(client: Client, address: str, size: int = 2, **query: Any) -> Iterator[dict[str, Any]]:
    """The pages of a list, each asked for once the one before has been looked at."""
    cursor: str | None = ""
    while cursor is not None:
        place = {"cursor": cursor} if cursor else {}
        answer = client.get(address, {**query, **place, "per_page": size})
        assert answer.status_code == 200, answer.content
        found = answer.json()
        yield found
        cursor = found["next"]


def _ids(pages: Iterator[dict[str, Any]]) -> list[str]:
    return [row["id"] for page in pages for row in page["items"]]


def _at_once(rows: list[Any]) -> list[str]:
    """Let all have been made at the same moment; their ids in the order that is left."""
    type(rows[0])._default_manager.filter(pk__in=[row.pk for row in rows]).update(created_at=timezone.now())
    return sorted(str(row.pk) for row in rows)


@pytest.fixture
def bobs(bob: User, client_for: Callable[..., Client]) -> Client:
    return client_for(bob)


def test_rows_that_come_and_go_in_front_shift_nothing(bobs: Client, project: Project, make_dataset: Any) -> None:
    there, address = _at_once([make_dataset() for _each in range(7)]), f"{V1}/projects/joust/datasets"
    walk = _walk(bobs, address)
    first = next(walk)
    assert [row["id"] for row in first["items"]] == there[:2]
    assert (first["page"], first["pages"], first["total"]) == (1, 4, 7)
    make_dataset()  # newer than all: in front
    Dataset.objects.filter(pk=there[0]).delete()  # was shown
    second = next(walk)
    assert [row["id"] for row in second["items"]] == there[2:4] and (second["page"], second["total"]) == (2, 7)
    Dataset.objects.filter(pk=there[3]).delete()  # the row that the cursor names
    Dataset.objects.filter(pk=there[5]).delete()  # was still to come
    assert _ids(walk) == [there[4], there[6]]


def test_a_page_by_number_leads_on_by_cursor(bobs: Client, project: Project, make_dataset: Any) -> None:
    there, address = _at_once([make_dataset() for _each in range(5)]), f"{V1}/projects/joust/datasets"
    second = bobs.get(address, {"page": 2, "per_page": 2}).json()
    third = bobs.get(address, {"cursor": second["next"], "per_page": 2}).json()
    assert [row["id"] for row in third["items"]] == there[4:] and (third["page"], third["next"]) == (3, None)
    last = bobs.get(address, {"page": 99, "per_page": 2}).json()
    assert (last["page"], last["pages"], last["next"]) == (3, 3, None)


def test_the_end_is_marked_where_rows_end_exactly(bobs: Client, project: Project, make_dataset: Any) -> None:
    address = f"{V1}/projects/joust/datasets"
    assert bobs.get(address).json()["next"] is None
    _at_once([make_dataset() for _each in range(4)])
    assert [len(page["items"]) for page in _walk(bobs, address)] == [2, 2]
    assert [len(page["items"]) for page in _walk(bobs, address, 3)] == [3, 1]
    assert [len(page["items"]) for page in _walk(bobs, address, 0)] == [1, 1, 1, 1]


def test_a_cursor_whose_rest_is_gone_ends(bobs: Client, project: Project, make_dataset: Any) -> None:
    there = _at_once([make_dataset() for _each in range(3)])
    walk = _walk(bobs, f"{V1}/projects/joust/datasets")
    next(walk)
    Dataset.objects.filter(pk=there[2]).delete()
    rest = next(walk)
    assert (rest["items"], rest["next"], rest["page"], rest["pages"]) == ([], None, 2, 2)


def _named(table: type[Model], project: Project, **values: Any) -> list[Any]:
    return [table._default_manager.create(project=project, name=f"row-{n}", **values) for n in range(5)]


def _made(kind: str, project: Project, bob: User, make_run: Any) -> tuple[str, list[Any]]:
    """Five rows of a kind with equal values where they may be equal, and the address of their list."""
    at, of = timezone.now(), f"{V1}/projects/{project.slug}/"
    if kind == "models":
        return of + kind, _named(RegisteredModel, project, kind="hub", source="a/b")
    if kind == "pushes":
        model = RegisteredModel.objects.create(project=project, name="small", kind="hub", source="a/b")
        values = {"model": model, "hub": "https://hub.example", "repository": "a/b", "state": "done"}
        rows = [ModelPush.objects.create(**values) for _n in range(5)]
        return f"{V1}/models/{model.pk}/pushes", rows
    if kind == "endpoints":
        return of + kind, _named(Endpoint, project, url="https://127.0.0.1:1/v1", model="gpt")
    if kind == "suites":
        rows = _named(Suite, project)
        for suite in rows:
            SuiteVersion.objects.create(suite=suite, number=1, parts=[])
        return of + kind, rows
    if kind == "sweeps":
        rows = _named(Sweep, project, config={}, axes=[], base={}, points=[])
        for sweep in rows:
            SweepRun.objects.create(sweep=sweep, number=0, run=make_run())
        return of + kind, rows
    if kind == "rollout-views":
        return of + kind, _named(SavedView, project, query="")
    if kind == "chats":
        rows = [Chat.objects.create(project=project, title="t", contestants=[{"title": "a"}]) for _n in range(5)]
        Chat.objects.update(used_at=at)
        return of + kind, rows
    if kind == "notifications":
        run = make_run()
        rows = []
        for number in range(5):
            event = Event.objects.create(
                project=project, kind="run_failed", key=str(number), object_kind="runs.run", object_id=str(run.pk)
            )
            rows.append(Notification.objects.create(event=event, user=bob))
        Event.objects.update(created_at=at)
        return f"{V1}/notifications", rows
    saved = _named(SavedComparison, project, contestants=[], created_by=bob)
    if kind == "comparisons":
        return of + kind, saved
    address = f"{V1}/comparisons/{saved[0].pk}/{kind}"
    if kind == "comments":
        return address, [Comment.objects.create(comparison=saved[0], text="said", created_by=bob) for _n in range(5)]
    values = {"comparison": saved[0], "created_by": bob, "hint": "h", "expires_at": at + timedelta(days=1)}
    return address, [SharedLink.objects.create(secret_hash=str(number), **values) for number in range(5)]


@pytest.mark.parametrize(
    "kind",
    [
        "models",
        "pushes",
        "endpoints",
        "suites",
        "sweeps",
        "rollout-views",
        "chats",
        "notifications",
        "comparisons",
        "comments",
        "links",
    ],
)
def test_equal_rows_come_once_each_whatever_they_are(
    kind: str, bobs: Client, bob: User, project: Project, make_run: Any
) -> None:
    address, rows = _made(kind, project, bob, make_run)
    if kind != "notifications":
        _at_once(rows)
    pages = list(_walk(bobs, address))
    assert [len(page["items"]) for page in pages] == [2, 2, 1] and {page["total"] for page in pages} == {5}
    found = [str(row["id"]) for page in pages for row in page["items"]]
    assert sorted(found) == sorted(str(row.pk) for row in rows)
    assert found == [str(row["id"]) for row in bobs.get(address).json()["items"]]


def test_tokens_go_on_by_person_and_name(
    project: Project, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    for user in (alice, bob):
        for number in range(3):
            ApiToken.objects.create(user=user, name=f"t{number}", token_hash=f"{user}{number}", hint="h")
    ApiToken.objects.update(created_at=timezone.now())
    found = [row for page in _walk(client_for(alice), f"{V1}/projects/joust/tokens", 4) for row in page["items"]]
    assert [row["username"] for row in found] == ["alice"] * 3 + ["bob"] * 3 and len({row["id"] for row in found}) == 6


KNOWN = "created started name state step reward success heldout owner spec model dataset duration device"
SORTS = [*KNOWN.split(), "nonsense"]  # what is unknown is the newest first


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{sort}" for sort in SORTS)])
def test_runs_go_on_under_every_order(sort: str, bobs: Client, project: Project, bob: User, make_run: Any) -> None:
    """Values that are equal, missing and no number; of all that time moves, nothing moves here."""
    rows = [make_run(state="succeeded", name=f"run-{number}") for number in range(7)]
    at = timezone.now()
    Run.objects.update(created_at=at)
    for run, reward in zip(rows[:5], (0.1 + 0.2, 0.1 + 0.2, float("nan"), float("nan"), -1e300), strict=True):
        values = {"last_reward": reward, "heldout_success": reward, "success": reward, "created_by": bob, "step": 3}
        times = {"started_at": at - timedelta(microseconds=3), "finished_at": at}
        Run.objects.filter(pk=run.pk).update(**values, **times)
        Attempt.objects.create(run=run, number=1, started_at=at - timedelta(seconds=1), ended_at=at)
    whole = [row["id"] for row in bobs.get(f"{V1}/projects/joust/runs", {"sort": sort}).json()["items"]]
    assert len(set(whole)) == 7
    assert _ids(_walk(bobs, f"{V1}/projects/joust/runs", 2, sort=sort)) == whole


# --- What a cursor is of --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cursor": "nonsense"}, "This cursor cannot be read; begin again without it."),
        ({"cursor": "[1, 2]"}, "This cursor cannot be read; begin again without it."),
        ({"cursor": "ünlesbar:x:y"}, "This cursor cannot be read; begin again without it."),
        ({"page": 2}, "Give `cursor` or `page`, not both."),
        ({"q": "data"}, "This cursor belongs to another list, or to other filters; begin again without it."),
        ({"name": "data-1"}, "This cursor belongs to another list, or to other filters; begin again without it."),
        (
            {"created_after": "2026-01-01T00:00:00Z"},
            "This cursor belongs to another list, or to other filters; begin again without it.",
        ),
    ],
)
def test_a_cursor_that_does_not_belong_here_is_refused(
    change: dict[str, Any], sentence: str, bobs: Client, project: Project, make_dataset: Any
) -> None:
    _at_once([make_dataset() for _each in range(3)])
    address = f"{V1}/projects/joust/datasets"
    cursor = bobs.get(address, {"per_page": 2}).json()["next"]
    answer = bobs.get(address, {"cursor": cursor, "per_page": 2} | change)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["detail"] == [{"path": "cursor", "message": sentence}]


def test_a_cursor_is_of_one_list_and_cannot_be_made_up(
    bobs: Client, alice: User, project: Project, make_dataset: Any, client_for: Callable[..., Client]
) -> None:
    _at_once([make_dataset() for _each in range(3)])
    cursor = bobs.get(f"{V1}/projects/joust/datasets", {"per_page": 2}).json()["next"]
    for address in (f"{V1}/projects/joust/models", f"{V1}/projects"):
        answer = bobs.get(address, {"cursor": cursor})
        assert answer.status_code == 422 and "belongs to another list" in answer.json()["message"]
    for number in range(0, len(cursor), 7):  # one letter of it is another
        other = cursor[:number] + ("A" if cursor[number] != "A" else "B") + cursor[number + 1 :]
        answer = bobs.get(f"{V1}/projects/joust/datasets", {"cursor": other})
        assert answer.status_code == 422 and "cannot be read" in answer.json()["message"]
    assert bobs.get(f"{V1}/projects/joust/datasets", {"cursor": "x" * 2001}).status_code == 422


def test_filters_that_choose_nothing_are_the_same_filters(bobs: Client, project: Project, make_run: Any) -> None:
    for _each in range(3):
        make_run(tags=["a", "b"])
    address = f"{V1}/projects/joust/runs"
    cursor = bobs.get(address, {"tag": ["a", "b"], "per_page": 2}).json()["next"]
    same = bobs.get(address, {"per_page": 1, "state": "", "tag": ["b", "a"], "cursor": cursor})
    assert same.status_code == 200 and len(same.json()["items"]) == 1
    assert bobs.get(address, {"tag": "a", "cursor": cursor}).status_code == 422


# --- Filters --------------------------------------------------------------------------------------------------------
AT = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"created_after": AT.isoformat()}, {"at", "after"}),
        ({"created_before": AT.isoformat()}, {"before"}),
        ({"created_after": "2026-03-01T12:00:00.000005"}, {"at", "after"}),  # without a zone: UTC
        ({"created_after": "2026-03-01T14:00:00.000005+02:00"}, {"at", "after"}),
        ({"created_after": "2026-03-01T12:00:00.000006Z"}, {"after"}),
        ({"created_before": "2026-03-01T12:00:00.000006Z"}, {"before", "at"}),
        ({"created_after": AT.isoformat(), "created_before": AT.isoformat()}, set()),
        ({"created_after": "0001-01-01T00:00:00+14:00"}, {"before", "at", "after"}),
        (
            {"created_after": "2026-03-02T11:59:00.000006+23:59"},
            {"after"},
        ),  # found by Schemathesis: no zone of PostgreSQL
        ({"created_after": "2026-02-28T12:01:00.000005-23:59"}, {"at", "after"}),
        ({"created_before": "9999-12-31T23:59:59-14:00"}, {"before", "at", "after"}),
        ({"name": "at"}, {"at"}),
        ({"name": "a"}, set()),
        ({"name": "AT"}, set()),
        ({"q": "A"}, {"at", "after"}),
        ({"q": "%"}, set()),
        ({"q": "_"}, set()),
        ({"q": "a", "created_before": "2026-03-01T12:00:00.000006Z"}, {"at"}),
    ],
)
def test_filters_choose(
    query: dict[str, str], found: set[str], bobs: Client, project: Project, make_dataset: Any
) -> None:
    for name, shift in {"before": -1, "at": 0, "after": 1}.items():
        made = make_dataset(name=name)
        Dataset.objects.filter(pk=made.pk).update(created_at=AT + timedelta(microseconds=shift))
    answer = bobs.get(f"{V1}/projects/joust/datasets", query).json()
    assert {row["name"] for row in answer["items"]} == found and answer["total"] == len(found)


@pytest.mark.parametrize(
    "query",
    [{"created_after": "yesterday"}, {"created_before": ""}, {"q": "x" * 201}, {"name": "x" * 201}],
)
def test_filters_that_cannot_be_read_are_refused(query: dict[str, str], bobs: Client, project: Project) -> None:
    answer = bobs.get(f"{V1}/projects/joust/datasets", query)
    assert answer.status_code == 422 and answer.json()["detail"][0]["path"].endswith(next(iter(query)))


def test_q_looks_where_the_list_is_read(bobs: Client, project: Project, bob: User, make_run: Any) -> None:
    RegisteredModel.objects.create(project=project, name="small", kind="hub", source="qwen/tiny")
    Chat.objects.create(project=project, title="About cats", contestants=[])
    make_run(name="night", notes="a cat ran")
    for path, text, there in (
        ("models", "QWEN", 1),
        ("models", "llama", 0),
        ("chats", "cats", 1),
        ("chats", "dogs", 0),
        ("runs", "cat", 1),
        ("runs", "NIGHT", 1),
        ("runs", "dog", 0),
    ):
        assert bobs.get(f"{V1}/projects/joust/{path}", {"q": text}).json()["total"] == there, (path, text)


def test_notifications_are_dated_by_what_happened(bobs: Client, project: Project, bob: User, make_run: Any) -> None:
    _made("notifications", project, bob, make_run)
    Event.objects.update(created_at=AT)
    Event.objects.filter(key="3").update(created_at=AT - timedelta(days=1))
    assert bobs.get(f"{V1}/notifications", {"created_before": AT.isoformat()}).json()["total"] == 1
    assert bobs.get(f"{V1}/notifications", {"created_after": AT.isoformat()}).json()["total"] == 4
