"""Making the file of a dataset of preference pairs from the journals of the run whose rollouts they are."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from training.errors import DataError
from training.exports.pairs import PairsMade, write_pairs
from training.journal import JOURNAL_NAME
from webapp.common.storage import attempt_dir, dataset_dir
from webapp.datasets.models import Dataset
from webapp.runs.models import Run
from webapp.runs.rollouts.groups import groups_read

PAIRS = "pairs"
"""The operation, as a lineage names it."""


def pairs_make(dataset: Dataset, target: Path) -> PairsMade:
    """Write the file of a dataset of pairs. Raises ``DataError`` where there is nothing to write."""
    options = dataset.lineage["options"]
    run = Run.objects.filter(project=dataset.project_id, pk=options["run_id"]).first()
    journals = journals_of(run) if run is not None else []
    if not journals:
        raise DataError(_("The run %(name)s, whose rollouts these are, was deleted.") % {"name": options["run"]})
    file = groups_path(dataset)
    groups = groups_read(file) if options.get("chosen") else None
    return write_pairs(
        journals, target, float(options["min_gap"]), limit_bytes=settings.MAX_UPLOAD_BYTES, groups=groups
    )


def groups_path(dataset: Dataset) -> Path:
    """The file with the groups that pairs are made of, where a person chose them."""
    return dataset_dir(dataset.id) / "groups.json"


def journals_of(run: Run) -> list[Path]:
    """The journals of the run's attempts, oldest first."""
    paths = (attempt_dir(run.pk, number) / JOURNAL_NAME for number in range(1, run.attempt + 1))
    return [path for path in paths if path.is_file()]
