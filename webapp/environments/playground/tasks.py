"""Where an episode's task comes from: a row of a dataset, a pasted object, or nothing but the seed."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from envs.wire import Message
from training.data import Row, RowError, check_tree, conversation_key, row_from_dict, strict_loads
from training.plain import json_problem
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import datasets_of
from webapp.environments.playground.commands import Empty, FromRow, Pasted
from webapp.people.teams.models import Project


class Start(NamedTuple):
    """The start of an episode: the environment's task, the row's own words, and where the row is from."""

    task: dict[str, Any]
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    origin: str


def start_of(project: Project, source: Empty | Pasted | FromRow) -> Start:
    """The start that a person asked for. Raises ``ValidationError`` with a sentence."""
    if isinstance(source, FromRow):
        dataset = datasets_of(project).filter(pk=source.dataset, state=DatasetState.READY).first()
        if dataset is None:
            raise ValidationError(_("This dataset is gone or not ready; choose another."))
        return start_of_row(dataset, source.row)
    if isinstance(source, Empty):
        return Start({}, [], None, "")
    problem = json_problem(source.task)
    if problem is not None:
        raise ValidationError(_("The task cannot be used: %(reason)s.") % {"reason": problem})
    if not isinstance(source.task.get(conversation_key(source.task) or ""), list):
        return Start(source.task, [], None, "")  # a task need not hold a conversation
    try:
        check_tree(source.task)
        return _start_before_answer(row_from_dict(source.task), "")
    except RowError as exc:
        raise ValidationError(_("The task cannot be used: %(reason)s.") % {"reason": exc}) from exc


def start_of_row(dataset: Dataset, number: int) -> Start:
    """Row ``number`` (from 1) of a ready dataset. Raises ``ValidationError``."""
    if not 1 <= number <= dataset.rows:
        raise ValidationError(
            _("%(name)s has rows 1 to %(rows)s.") % {"name": str(dataset), "rows": f"{dataset.rows:,}"}
        )
    try:
        with dataset.rows_path.open(encoding="utf-8") as file:
            line = next(islice(file, number - 1, None), "")
        return _start_before_answer(row_from_dict(strict_loads(line)), f"{dataset.reference}#{number}")
    except (OSError, RowError, TypeError, AttributeError) as exc:
        raise ValidationError(_("Row %(number)s cannot be read.") % {"number": number}) from exc


def _start_before_answer(row: Row, origin: str) -> Start:
    """A row before its first answer: a person who plays must not see the solution."""
    answer = next((at for at, message in enumerate(row.messages) if message.role == "assistant"), None)
    if answer is None:
        return Start(row.task(), row.messages, row.tools, origin)
    key = conversation_key(row.raw) or "messages"
    prompt = [message.model_dump(exclude_none=True) for message in row.messages[:answer]]
    return Start(row.task() | {key: prompt}, row.messages[:answer], row.tools, origin)
