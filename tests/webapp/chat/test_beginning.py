"""A chat begun on a dataset's row or on a rollout: addresses name the two, the server reads their text."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webapp.chat.models import Chat, Turn
from webapp.environments.models import DatasetOrder
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.models import Turn as RolloutTurn

pytestmark = pytest.mark.django_db
NEW = "/p/joust/chats/new/"
LINES = [
    {"messages": [{"role": "user", "content": "First?"}, {"role": "assistant", "content": "the solution"}]},
    {
        "messages": [
            {"role": "system", "content": "You add <numbers>."},
            {"role": "user", "content": "What is 2 + 3?\nSay it."},
            {"role": "assistant", "content": "the solution"},
            {"role": "user", "content": "And now?"},
        ]
    },
]


@pytest.fixture(autouse=True)
def _hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is asked."""
    monkeypatch.setattr("webapp.chat.services.hint", lambda _pool: None)


@pytest.fixture
def played(make_run: Callable[..., Run], make_environment: Any) -> Callable[..., Rollout]:
    """``played(messages, environment)``: a rollout whose first turn has these messages."""

    def make(messages: list[Any] | None, environment: str = "environment:tools") -> Rollout:
        run = make_run(name="night-1", state="succeeded", config={"environment": {"name": environment}})
        place = {"attempt": 1, "step": 4, "group": 2, "index": 7, "seq": 1, "started_at": timezone.now()}
        rollout = Rollout.objects.create(run=run, **place)
        if messages is not None:
            RolloutTurn.objects.create(rollout=rollout, run=run, number=0, messages=messages, seq=1)
            answered = [{"role": "assistant", "content": "the solution"}]
            RolloutTurn.objects.create(rollout=rollout, run=run, number=1, messages=answered, seq=2)
        return rollout

    return make


def fields(client: Client, query: str) -> dict[str, str]:
    """What the form holds at first."""
    answer = client.get(NEW + query)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    values = answer.context["values"]
    return {name: values.get(name, "") for name in ("model", "environment", "system", "first")}


def test_a_row_brings_its_system_message_and_its_task_and_not_its_solution(
    client_for: Callable[..., Client], bob: User, make_dataset: Any
) -> None:
    data, client = make_dataset(LINES), client_for(bob)
    found = fields(client, f"?dataset={data.pk}&row=2")
    assert found == {
        "model": "",
        "environment": "",
        "system": "You add <numbers>.",
        "first": "What is 2 + 3?\nSay it.",
    }
    assert fields(client, f"?dataset={data.pk}&row=1") | {"first": ""} == dict.fromkeys(found, "")
    page = client.get(f"{NEW}?dataset={data.pk}&row=2").content.decode()
    assert f'<a href="/p/joust/datasets/{data.pk}/">Row 2 of data-1@1</a>' in page
    assert "You add &lt;numbers&gt;.</textarea>" in page and "the solution" not in page


def test_the_environment_is_the_one_that_made_the_rows_else_the_one_of_the_newest_run(
    client_for: Callable[..., Client], bob: User, make_dataset: Any, make_environment: Any, make_run: Any
) -> None:
    data, client = make_dataset(LINES), client_for(bob)
    bed, tools = (make_environment(name=name, url=f"http://127.0.0.1:{at}") for at, name in ((1, "bed"), (2, "tools")))
    query = f"?dataset={data.pk}&row=1"
    for name in ("bed", "gone"):  # the newest names one that is not here any more
        make_run(config={"data": {"train": data.reference}, "environment": {"name": f"environment:{name}"}})
    assert fields(client, query)["environment"] == ""
    Run.objects.order_by("-created_at")[0].delete()
    assert fields(client, query)["environment"] == bed.name
    DatasetOrder.objects.create(environment=tools, name="made", command="tasks", dataset=data)
    assert fields(client, query)["environment"] == "tools"
    assert fields(client, f"{query}&environment=bed")["environment"] == "bed"  # what an address says itself counts


def test_a_rollout_brings_its_prompt_its_environment_and_the_model_that_its_run_left(
    client_for: Callable[..., Client], bob: User, project: Project, played: Any, make_environment: Any, make_run: Any
) -> None:
    make_environment(name="tools", url="http://127.0.0.1:1")
    prompt = [{"role": "system", "content": "Count."}, {"role": "user", "content": "What is 9 * 5?"}]
    rollout, client = played(prompt), client_for(bob)
    query = f"?rollout={rollout.pk}"
    expected = {"model": "", "environment": "tools", "system": "Count.", "first": "What is 9 * 5?"}
    assert fields(client, query) == expected
    place = {"run": rollout.run, "attempt": 1, "step": 9, "bytes": 1, "seq": 1, "created_at": timezone.now()}
    Checkpoint.objects.create(project=project, path="1/checkpoint-9", **place)  # on the way, not what it left
    other = place | {"run": make_run(name="other"), "final": True}
    Checkpoint.objects.create(project=project, path="1/model", **other)  # of another run
    assert fields(client, query)["model"] == ""
    left = Checkpoint.objects.create(project=project, path="1/model", final=True, **place)
    assert fields(client, query) == expected | {"model": f"checkpoint:{left.pk}"}
    page = client.get(NEW + query).content.decode()
    assert f'<a href="/p/joust/rollouts/{rollout.pk}/">Rollout 4.2.7 of night-1</a>' in page
    assert f'<option value="checkpoint:{left.pk}" selected>' in page and "the solution" not in page


@pytest.mark.parametrize(
    ("messages", "first"),
    [(None, ""), ([], ""), ([{"role": "user", "content": None}], ""), ([{"content": 1}], ""), ([{"role": "user"}], "")],
)
def test_an_odd_prompt_leaves_the_fields_empty(
    client_for: Callable[..., Client], bob: User, played: Any, messages: Any, first: str
) -> None:
    found = fields(client_for(bob), f"?rollout={played(messages).pk}")
    assert (found["first"], found["system"], found["environment"]) == (first, "", "")


def test_the_first_message_is_sent_with_the_start(
    client_for: Callable[..., Client], bob: User, tiny: RegisteredModel
) -> None:
    client = client_for(bob)
    answer = client.post(NEW, {"model": "model:tiny", "system": "Count.", "first": " What is 9 * 5? "})
    chat = Chat.objects.get()
    assert answer["Location"] == f"/p/joust/chats/{chat.pk}/"
    turn = Turn.objects.get(chat=chat)
    assert (turn.text, turn.said_by, turn.answers.count()) == ("What is 9 * 5?", bob, 1)
    assert (chat.parameters["system"], chat.title) == ("Count.", "What is 9 * 5?")
    client.post(NEW, {"model": "model:tiny", "first": "  "})
    assert Chat.objects.count() == 2 and Turn.objects.count() == 1


def test_a_first_message_that_cannot_be_sent_starts_no_chat(
    client_for: Callable[..., Client], bob: User, tiny: RegisteredModel
) -> None:
    answer = client_for(bob).post(NEW, {"model": "model:tiny", "first": "x" * 200_001})
    assert answer.status_code == 422 and "at most 200,000 fit" in answer.content.decode()
    assert not Chat.objects.exists()


def test_what_is_not_here_is_not_found(
    client_for: Callable[..., Client], bob: User, rita: User, charlie: User, make_dataset: Any, played: Any
) -> None:
    data, checking, rollout = make_dataset(LINES), make_dataset(LINES, state="checking"), played([])
    queries = [f"?dataset={data.pk}&row=1", f"?rollout={rollout.pk}"]
    for query in queries:
        assert client_for(bob).get(NEW + query).status_code == 200
        assert client_for(rita).get(NEW + query).status_code == 403
        assert client_for(charlie).get(NEW + query).status_code == 404
        assert client_for(charlie).get(f"/p/elsewhere/chats/new/{query}").status_code == 404
        assert client_for(None).get(NEW + query)["Location"].startswith("/login/")
    wrong = [f"?dataset={uuid.uuid4()}&row=1", "?dataset=x&row=1", f"?dataset={checking.pk}&row=1", "?rollout=x"]
    for query in (*wrong, f"?rollout={uuid.uuid4()}"):
        assert client_for(bob).get(NEW + query).status_code == 404


@pytest.mark.parametrize("row", ["", "0", "3", "-1", "x", "1e3", "²", "9" * 40])
def test_a_row_that_is_not_there_is_reported(
    client_for: Callable[..., Client], bob: User, make_dataset: Any, row: str
) -> None:
    answer = client_for(bob).get(NEW, {"dataset": make_dataset(LINES).pk, "row": row})
    page = answer.content.decode()
    assert answer.status_code == 422 and ("has rows 1 to 2" in page or "a number from 1" in page)
    assert "First?" not in page


def test_pages_of_rows_and_rollouts_lead_there_for_everyone_who_may_write(
    client_for: Callable[..., Client], bob: User, rita: User, make_dataset: Any, played: Any
) -> None:
    report = {"preview": LINES}
    data, rollout = make_dataset(LINES, report=report), played([])
    waiting = make_dataset(LINES, report=report, state="needs_choice")
    row, again = f"{NEW}?dataset={data.pk}&amp;row=2", f"{NEW}?rollout={rollout.pk}"
    pages = {row: f"/p/joust/datasets/{data.pk}/", again: f"/p/joust/rollouts/{rollout.pk}/"}
    for link, page in pages.items():
        assert f'href="{link}"' in client_for(bob).get(page).content.decode()
        assert "Try in chat" not in client_for(rita).get(page).content.decode()
    assert "Try in chat" not in client_for(bob).get(f"/p/joust/datasets/{waiting.pk}/").content.decode()
