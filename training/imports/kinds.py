"""The kinds of files that an import reads, and what tells that a file is of one."""

from __future__ import annotations

from training.data.files.archive import Given
from training.data.files.sniff import sniff
from training.errors import DataError
from training.imports import (
    console,
    databases,
    mlflow,
    prime_console,
    recorded,
    rollouts,
    tables,
    tensorboard,
    trainer_console,
    trainer_state,
)
from training.imports.axis import STEPS
from training.imports.base import Reader, shown
from training.imports.refusals import refuse_others, refuse_wandb
from training.words import _, sentence

# Figures first, so that what a log says of a step is known before its rollouts are summed up.
READERS: tuple[Reader, ...] = (
    trainer_state.READER,
    tensorboard.READER,
    databases.TRACKIO_READER,
    databases.MLFLOW_READER,
    mlflow.READER,
    tables.CSV_READER,
    tables.LINES_READER,
    rollouts.DUMP_READER,
    recorded.NEMO_READER,
    recorded.TRACE_READER,
    recorded.ART_READER,
    rollouts.COMPLETIONS_READER,
    console.READER,
    prime_console.READER,
    trainer_console.READER,
)
_BINARY = (tensorboard.READER, databases.TRACKIO_READER, databases.MLFLOW_READER)
LOGS = (console.READER, prime_console.READER, trainer_console.READER)


def recognise(given: Given) -> tuple[Reader, str]:
    """What reads a file, and why. Raises ``DataError`` that says what the file is instead."""
    for reader in _BINARY:
        if why := reader.recognise(given.path):
            return reader, why
    if databases.is_database(given.path):
        databases.refuse(given.path)
    refuse_wandb(given.path)
    sniff(given.path)  # says what a picture, a pickle or UTF-16 is
    for reader in READERS:
        if why := reader.recognise(given.path):
            return reader, why
    refuse_others(given.path)
    header = tables.header_of(given.path)
    if header:
        raise DataError(
            sentence(
                _("The table has no column of steps; its columns are {columns}."), columns=shown(", ".join(header))
            ),
            hint=sentence(_("Name one of them {name}."), name=STEPS[0]),
        )
    raise DataError(
        _(
            "This is not a known file of a run: there is no line such as “step:1 - reward:0.5” or “{'loss': 0.5}”, "
            "and its rows are neither rollouts nor metrics with a step."
        ),
        hint=_(
            "Give a console log, rollout dumps, TRL's completions, trainer_state.json, TensorBoard's events, or a "
            "table of metrics."
        ),
    )
