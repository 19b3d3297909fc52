"""Datasets that people ask of built-in environments, written by a worker (``webapp.common.work``)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files import File
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.children import KILLED, limited_child
from training.errors import DataError, TiltyardError
from webapp.common import work
from webapp.common.host import die_with_parent
from webapp.common.pages import clean_name
from webapp.common.storage import dataset_dir
from webapp.common.work import Claim
from webapp.datasets.models import Dataset
from webapp.datasets.operations import origin_note
from webapp.datasets.services import dataset_create
from webapp.environments.builtin import BuiltIn, Command, arguments_argv, arguments_clean
from webapp.environments.launchers import last_lines, program_environment
from webapp.environments.models import DatasetOrder, Environment, OrderState
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User

# --- Writing --------------------------------------------------------------------------------------------------------
# Rows of a dataset, written by ``python -m envs.<program> <command>`` in a limited process of its own.
#
# The child gets an argument list (no shell), an environment without secrets, and limits of time, memory and file size.
# In every case the result is a dataset whose check begins, or an ``OrderFailed`` with a sentence.

TIME_LIMIT_S = 300
SAID_BYTES = 4 << 10
SAID_LINES, SAID_CHARS = 20, 300
# What Python, its modules written in C and the loader say where memory ran out, in the order of how far a program got.
OUT_OF_MEMORY = (
    "cannot map zero-fill pages",
    "failed to map segment",
    "Memory allocation still failed",  # OpenBLAS
    "Cannot allocate memory",
    "MemoryError",
    "error return without exception set",  # CPython, where the error itself found no memory
    "returned NULL without setting an exception",
)


class OrderFailed(DataError):
    """The rows could not be written; the sentence says why."""


def dataset_generate(
    *,
    project: Project,
    user: User | None,
    name: str,
    program: str,
    command: str,
    words: list[str],
    memory_mb: int = 1024,
    handed_in: Callable[[Dataset], None] | None = None,
) -> Dataset:
    """Have a program write rows, and hand them in like an upload; ``handed_in`` is part of the same transaction.

    Raises ``OrderFailed``.
    """
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as folder:
        path = Path(folder) / f"{program}-{command}.jsonl"
        _write_rows([f"envs.{program}", command, *words, "--output", str(path)], path, memory_mb)
        if not path.is_file() or not path.stat().st_size:
            raise OrderFailed(
                _("The environment has no rows there, so nothing was written."),
                hint=_("Begin at an earlier task."),
            )
        try:
            with path.open("rb") as file, transaction.atomic():
                dataset = dataset_create(project=project, user=user, name=name, file=File(file), file_name=path.name)
                if handed_in is not None:
                    _hand_in(dataset, handed_in)
                return dataset
        except ValidationError as exc:
            raise OrderFailed(" ".join(exc.messages)) from exc


def _hand_in(dataset: Dataset, handed_in: Callable[[Dataset], None]) -> None:
    try:
        handed_in(dataset)
    except BaseException:  # the row goes with the transaction
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise


def _write_rows(module: list[str], path: Path, memory_mb: int) -> None:
    output = path.with_suffix(".log")
    limits = {
        "RLIMIT_DATA": memory_mb << 20,
        "RLIMIT_FSIZE": settings.MAX_UPLOAD_BYTES,
        "RLIMIT_CPU": TIME_LIMIT_S,
        "RLIMIT_CORE": 0,
    }
    with (
        output.open("wb") as log,
        limited_child(
            [sys.executable, "-m", *module],
            wall_s=TIME_LIMIT_S,
            # Where files are limited in size, Python would leave bytecode behind that is cut off.
            env={**program_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
            limits=limits,
            stdout=log,
            stderr=log,
            cwd=settings.BASE_DIR,
            preexec_fn=die_with_parent,
        ) as child,
    ):
        in_time = child.wait()
    if not in_time:
        raise OrderFailed(
            _("Writing the rows took longer than %(limit)s seconds.") % {"limit": TIME_LIMIT_S},
            hint=_("Ask for fewer rows."),
        )
    if child.code:
        raise _failure_of_child(child.code, output, path, memory_mb)


def _failure_of_child(code: int, output: Path, path: Path, memory_mb: int) -> OrderFailed:
    """Why a child failed, from the last lines it printed; the path of its file is left out."""
    with output.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - SAID_BYTES))
        lines = last_lines(log.read(), SAID_LINES)
    last = lines[-1].replace(str(path), path.name)[:SAID_CHARS] if lines else f"exit code {code}"
    if path.is_file() and path.stat().st_size >= settings.MAX_UPLOAD_BYTES:
        return OrderFailed(_("The rows became larger than a dataset may be."), hint=_("Ask for fewer rows."))
    if code in KILLED or any(words in line for words in OUT_OF_MEMORY for line in lines):
        return OrderFailed(
            _("Writing the rows needed more than %(limit)s MB of memory.") % {"limit": memory_mb},
            hint=_("Raise the environment's memory limit."),
        )
    return OrderFailed(_("The environment could not write the rows: %(why)s") % {"why": last})


# --- Orders ---------------------------------------------------------------------------------------------------------

MAX_OPEN = 3
OPEN = DatasetOrder.OPEN


def order_create(
    *, environment: Environment, user: User, name: str, command: str, arguments: dict[str, Any]
) -> DatasetOrder:
    """Ask for a dataset. Raises ``ValidationError`` by field, options as ``<command>-<option>``."""
    _program, chosen = _program_and_command(environment, command)
    order = DatasetOrder(
        environment=environment,
        name=clean_name(name),
        command=command,
        created_by=user,
        arguments=arguments_clean(chosen.options, arguments, prefix=f"{command}-"),
    )
    if not order_room(environment.project):
        full = _("%(n)s datasets of this project are being generated already. Wait until one is done, then try again.")
        raise ValidationError(full % {"n": MAX_OPEN})
    with transaction.atomic():
        order.save(force_insert=True)
        work.enqueue(order)
        audit(AuditAction.DATASET_ORDERED, environment, by=user, subject=f"{environment}: {order.name}")
    return order


def order_room(project: Project) -> bool:
    """Whether one more dataset may be asked for now."""
    return DatasetOrder.objects.filter(environment__project=project, state__in=OPEN).count() < MAX_OPEN


def _program_and_command(environment: Environment, name: str) -> tuple[BuiltIn, Command]:
    program = environment.built_in
    if program is None or name not in program.datasets:
        raise ValidationError({"command": _("This environment cannot generate that.")})
    return program, program.datasets[name]


def order_run(claim: Claim[DatasetOrder]) -> None:
    """Have a claimed order written; the dataset and the end of the order are one transaction."""
    order, environment = claim.item, claim.item.environment
    program, command = _program_and_command(environment, order.command)
    words = arguments_argv(command.shared, _shared_arguments(environment, command))
    words += arguments_argv(command.options, order.arguments)

    def handed_in(dataset: Dataset) -> None:
        origin_note(dataset, environment=environment.name, command=order.command, arguments=order.arguments)
        claim.finish(state=OrderState.DONE, dataset=dataset)

    dataset_generate(
        project=environment.project,
        user=order.created_by,
        name=order.name,
        program=program.name,
        command=order.command,
        words=words,
        memory_mb=environment.memory_mb,
        handed_in=handed_in,
    )


def order_failed(order: DatasetOrder, error: TiltyardError) -> dict[str, Any]:
    """The columns of an order that failed."""
    return {"state": OrderState.FAILED, "error": error.info.model_dump(mode="json")}


def _shared_arguments(environment: Environment, command: Command) -> dict[str, Any]:
    """The server's options that the command takes over, so that both mean the same tasks."""
    names = {option.name for option in command.shared}
    return {name: value for name, value in environment.arguments.items() if name in names}


def orders_of(environment: Environment) -> QuerySet[DatasetOrder]:
    """The orders of an environment, newest first, without those whose dataset was deleted."""
    orders = DatasetOrder.objects.filter(environment=environment).exclude(state=OrderState.DONE, dataset=None)
    return orders.select_related("dataset", "created_by").order_by("-created_at")
