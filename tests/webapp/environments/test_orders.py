"""Datasets that built-in environments write: every program's rows pass the check, and the trainer shows them once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from envs.base.environment import ToolEnvironment
from tests.working import at_once, claimed, done, perform
from training.data.schema import row_from_dict
from training.rollout.session import opening
from webapp.common import work
from webapp.common.storage import dataset_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments import orders
from webapp.environments.models import DatasetOrder, Environment, Kind, OrderState
from webapp.environments.orders import _failure_of_child
from webapp.people.teams.models import AuditAction, AuditEntry, User

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Check here, without a worker; orders that were sent are listed, and written when a test says so."""
    return at_once(monkeypatch, Dataset)


@pytest.fixture
def shop(make_environment: Any) -> Environment:
    return _environment(make_environment, "webshop", {"products": 60})


def _environment(make_environment: Any, program: str, arguments: dict[str, Any] | None = None) -> Environment:
    found: Environment = make_environment(
        kind=Kind.PROCESS, program=program, url="", name=program, arguments=arguments or {}
    )
    return found


def _ask(environment: Environment, user: User, command: str = "tasks", **arguments: Any) -> DatasetOrder:
    return orders.order_create(
        environment=environment, user=user, name=f"{environment.name}-{command}", command=command, arguments=arguments
    )


# --- Rows of all programs ---------------------------------------------------------------------------------------------
CASES = [
    ("tools", "tasks", {"count": 12, "difficulty": "mixed", "language": "both"}, {}, 12),
    ("tools", "demonstrations", {"count": 9, "careless": 0.5}, {}, 9),
    ("bfcl", "tasks", {"split": "miss_func"}, {}, 200),
    ("bfcl", "tasks", {"split": "base", "speech": "text"}, {}, 200),
    ("bfcl", "demonstrations", {"turns": 2, "count": 3, "speech": "text"}, {}, 12),
    ("webshop", "demonstrations", {"count": 6, "speech": "text"}, {"products": 60}, 6),
    ("webshop", "tasks", {"count": 8, "start": 2}, {"products": 60}, 8),
    ("toolbench", "tasks", {"count": 7, "start": 5}, {}, 7),
    ("toolbench", "tasks", {"count": 3, "speech": "text"}, {"max-turns": 4}, 3),
    ("toolbench", "demonstrations", {"count": 4}, {}, 4),
]


@pytest.mark.parametrize(("program", "command", "arguments", "server", "rows"), CASES)
def test_rows_of_every_program_pass_the_check(
    make_environment: Any,
    bob: User,
    program: str,
    command: str,
    arguments: dict[str, Any],
    server: dict[str, Any],
    rows: int,
) -> None:
    environment = _environment(make_environment, program, server)
    order = done(_ask(environment, bob, command, **arguments))
    assert (order.state, order.error) == (OrderState.DONE, None)
    dataset = order.dataset
    assert dataset is not None
    assert (dataset.state, dataset.rows, dataset.bad_rows) == (DatasetState.READY, rows, 0), dataset.report
    assert (dataset.name, dataset.created_by) == (f"{program}-{command}", bob)
    kept = [json.loads(line) for line in dataset.rows_path.read_text().splitlines()]
    assert len(kept) == rows and all(row["messages"] for row in kept)
    if command == "tasks":
        _require_shown_once(_playing(program), kept[0])


def _playing(program: str) -> ToolEnvironment:
    """The environment itself, as a server with the options of these tests has it."""
    if program == "tools":
        from envs.tools.server import ToolsEnvironment

        return ToolsEnvironment()
    if program == "bfcl":
        from envs.bfcl.server import BfclEnvironment

        return BfclEnvironment()
    if program == "webshop":
        from envs.webshop.generator import generated_catalogue
        from envs.webshop.server import WebshopEnvironment
        from envs.webshop.session import Shop

        return WebshopEnvironment(Shop(generated_catalogue(60, 0)))
    from envs.toolbench.bench import open_bench
    from envs.toolbench.server import ToolbenchEnvironment

    bench = open_bench()
    return ToolbenchEnvironment(bench.answerer, bench.tasks)


def _require_shown_once(environment: ToolEnvironment, raw: dict[str, Any]) -> None:
    """The trainer's prompt is the row's own conversation: a reset repeats it, and adds nothing to it."""
    row = row_from_dict(raw)
    first = environment.reset(row.task(), 1, "e")
    assert not isinstance(first, Exception)
    prompt = [(message.role, message.content) for message in opening(row.messages, first)]  # type: ignore[arg-type]
    assert prompt == [(message.role, message.content) for message in row.messages]


# --- Failures ---------------------------------------------------------------------------------------------------------
def test_where_the_tasks_end_there_is_a_sentence(shop: Environment, bob: User) -> None:
    order = done(_ask(shop, bob, count=5, start=9_000_000))
    assert order.state == OrderState.FAILED and "no rows there" in order.error["message"]
    assert not Dataset.objects.exists()


def test_what_the_program_says_is_on_the_page(
    shop: Environment, bob: User, client_for: Callable[..., Client], tmp_path: Any, settings: Any
) -> None:
    settings.ENVIRONMENT_DATA_DIR = tmp_path
    (tmp_path / "empty").mkdir()
    Environment.objects.filter(pk=shop.pk).update(arguments={"data": "empty"})
    order = done(_ask(shop, bob, count=5))
    assert order.state == OrderState.FAILED and "could not write the rows" in order.error["message"]
    page = client_for(bob).get(reverse("environment-orders", args=[shop.project.slug, shop.pk])).content.decode()
    assert "could not write the rows" in page and "every 1s" not in page
    (tmp_path / "empty").rmdir()
    again = done(_ask(shop, bob, count=5))
    assert again.error["message"] == "This is not in the data folder."


def test_a_program_that_hangs_is_ended(shop: Environment, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "TIME_LIMIT_S", 0)
    order = done(_ask(shop, bob, count=5))
    assert order.state == OrderState.FAILED and "longer than 0 seconds" in order.error["message"]


def test_a_program_that_needs_too_much_is_ended(shop: Environment, bob: User, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 5_000
    order = done(_ask(shop, bob, count=200))
    assert order.error["message"] == "The rows became larger than a dataset may be."
    Environment.objects.filter(pk=shop.pk).update(memory_mb=64, arguments={"products": 200_000})
    order = done(_ask(shop, bob, count=5))
    assert order.error["message"] == "Writing the rows needed more than 64 MB of memory."


@pytest.mark.parametrize("memory_mb", [16, 22, 28, 34, 40])
def test_however_early_memory_runs_out_the_limit_is_named(shop: Environment, bob: User, memory_mb: int) -> None:
    """The loader, OpenBLAS and CPython itself each have words of their own for it."""
    Environment.objects.filter(pk=shop.pk).update(memory_mb=memory_mb)
    order = done(_ask(shop, bob, count=5))
    assert order.error["message"] == f"Writing the rows needed more than {memory_mb} MB of memory."


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "SystemError: error return without exception set"),
        (1, "SystemError: <built-in function hash> returned NULL without setting an exception"),
        (1, "OpenBLAS error: Memory allocation still failed after 10 retries, giving up."),
        (1, "ImportError: libscipy_openblas64_.so: cannot map zero-fill pages"),
        (-signal.SIGSEGV, ""),
    ],
)
def test_words_of_a_program_without_memory(tmp_path: Path, code: int, words: str) -> None:
    log, rows = tmp_path / "rows.log", tmp_path / "rows.jsonl"
    log.write_text(f"Traceback (most recent call last):\n{words}\n")
    assert str(_failure_of_child(code, log, rows, 64)) == "Writing the rows needed more than 64 MB of memory."


@pytest.mark.parametrize(
    ("said", "written", "message"),
    [
        ("Traceback:\nValueError: no products\n\n", "", "could not write the rows: ValueError: no products"),
        ("ValueError: {rows} is full", "123456789", "could not write the rows: ValueError: rows.jsonl is full"),
        ("", "", "could not write the rows: exit code 1"),
        ("x" * 301, "", f"could not write the rows: {'x' * 300}"),
        ("MemoryError\n" + f"{'x' * 1024}\n" * 4, "", f"could not write the rows: {'x' * 300}"),  # long ago
        ("ValueError", "1234567890", "The rows became larger than a dataset may be."),
    ],
)
def test_other_failures_keep_the_words_of_the_program(
    tmp_path: Path, settings: Any, said: str, written: str, message: str
) -> None:
    settings.MAX_UPLOAD_BYTES = 10
    log, rows = tmp_path / "rows.log", tmp_path / "rows.jsonl"
    log.write_text(said.replace("{rows}", str(rows)))
    if written:
        rows.write_text(written)
    assert str(_failure_of_child(1, log, rows, 64)).removeprefix("The environment ") == message


def test_an_order_is_written_once(shop: Environment, bob: User) -> None:
    order = done(_ask(shop, bob, count=2))
    assert done(order).state == OrderState.DONE and Dataset.objects.count() == 1
    work.do("environments.datasetorder", "00000000-0000-0000-0000-000000000000")  # nothing there, nothing done


def test_a_late_worker_hands_nothing_in(shop: Environment, bob: User) -> None:
    """The dataset and the end of the order are one transaction; a lost order left a second dataset behind."""
    order = _ask(shop, bob, count=2)
    late = claimed(order)
    DatasetOrder.objects.update(token="")  # as ``look`` leaves one whose worker fell silent
    assert done(order).state == OrderState.DONE
    folders = set(dataset_dir(order.pk).parent.iterdir())
    perform(late)
    order.refresh_from_db()
    assert order.state == OrderState.DONE and Dataset.objects.count() == 1
    assert set(dataset_dir(order.pk).parent.iterdir()) == folders


def test_a_few_orders_at_once(shop: Environment, bob: User) -> None:
    for _number in range(orders.MAX_OPEN):
        _ask(shop, bob, count=2)
    full = "3 datasets of this project are being generated already. Wait until one is done, then try again."
    with pytest.raises(ValidationError, match=full):
        _ask(shop, bob, count=2)


@pytest.mark.parametrize(
    ("command", "arguments", "field"),
    [
        ("generate", {}, "command"),
        ("validate", {}, "command"),
        ("tasks", {"count": 0}, "tasks-count"),
        ("tasks", {"output": "/etc/passwd"}, "tasks-output"),
        ("tasks", {"data": "x"}, "tasks-data"),
    ],
)
def test_only_declared_commands_and_options(
    shop: Environment, bob: User, command: str, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        _ask(shop, bob, command, **arguments)
    assert list(caught.value.message_dict) == [field] and not DatasetOrder.objects.exists()


# --- Pages ------------------------------------------------------------------------------------------------------------
def test_asking_through_the_page(
    make_environment: Any, bob: User, client_for: Callable[..., Client], _workers: list[str]
) -> None:
    bfcl = _environment(make_environment, "bfcl", {"speech": "text"})
    address, client = reverse("environment-order", args=[bfcl.project.slug, bfcl.pk]), client_for(bob)
    page = client.get(address).content.decode()
    assert '<option value="text" selected>' in page and "GRPO run plays" in page
    made = client.post(address, {"command": "tasks", "name": "hard", "tasks-split": "base", "tasks-speech": "native"})
    assert made.status_code == 302 and made["Location"].endswith(f"{bfcl.pk}/#orders")
    order = DatasetOrder.objects.all()[0]
    assert (order.name, order.arguments, order.created_by) == ("hard", {"split": "base"}, bob)
    assert client.post(address, {"command": "tasks", "name": " "}).status_code == 302
    assert DatasetOrder.objects.filter(name="bfcl-tasks", arguments={}).delete()[0] == 1
    asked = AuditEntry.objects.filter(action=AuditAction.DATASET_ORDERED).order_by("at")
    assert [(row.username, row.subject) for row in asked] == [("bob", "bfcl: hard"), ("bob", "bfcl: bfcl-tasks")]
    assert _workers[0] == str(order.pk)
    text = client.get(reverse("environment-detail", args=[bfcl.project.slug, bfcl.pk])).content.decode()
    assert "every 1s" in text and "waiting" in text and "<progress" in text
    done(order)
    page = client.get(reverse("environment-orders", args=[bfcl.project.slug, bfcl.pk])).content.decode()
    assert "hard@1" in page and "200 rows" in page and "every 1s" not in page
    options = {"environment": "bfcl", "command": "tasks", "arguments": {"split": "base"}}
    assert Dataset.objects.get().lineage == {"operation": "order", "options": options, "parents": []}
    Dataset.objects.all().delete()
    gone = client.get(reverse("environment-orders", args=[bfcl.project.slug, bfcl.pk])).content.decode()
    assert "hard" not in gone


@pytest.mark.parametrize("bad", [{"command": "validate"}, {"name": "../x"}, {"tasks-count": "0"}, {"tasks-start": "x"}])
def test_a_wrong_order_is_refused(
    shop: Environment, bob: User, client_for: Callable[..., Client], bad: dict[str, str]
) -> None:
    address = reverse("environment-order", args=[shop.project.slug, shop.pk])
    page = client_for(bob).post(address, {"command": "tasks", "name": "x"} | bad)
    assert page.status_code == 422 and list(page.context["form"].errors) == list(bad)
    assert not DatasetOrder.objects.exists()


def test_who_may_ask_and_who_may_look(
    shop: Environment, client_for: Callable[..., Client], alice: User, rita: User, charlie: User
) -> None:
    ask, look = (
        reverse(name, args=[shop.project.slug, shop.pk]) for name in ("environment-order", "environment-orders")
    )
    assert [client_for(user).get(ask).status_code for user in (alice, rita, charlie, None)] == [200, 403, 404, 302]
    assert [client_for(user).get(look).status_code for user in (alice, rita, charlie, None)] == [200, 200, 404, 302]
    assert client_for(alice).put(ask).status_code == client_for(alice).post(look).status_code == 405
    assert "Generate a dataset" not in client_for(rita).get(look).content.decode()


def test_a_server_at_an_address_writes_nothing(
    make_environment: Any, client_for: Callable[..., Client], bob: User
) -> None:
    made = make_environment()
    address = reverse("environment-order", args=[made.project.slug, made.pk])
    assert client_for(bob).get(address)["Location"].endswith(f"/environments/{made.pk}/")
    with pytest.raises(ValidationError, match="cannot generate that"):
        _ask(made, bob)
