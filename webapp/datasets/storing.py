"""Putting uploaded files in their places."""

from __future__ import annotations

import shutil

from webapp.common.storage import companion, file_store
from webapp.datasets.choices import Choices, documents_named
from webapp.datasets.models import Dataset


def companions_store(dataset: Dataset, choices: Choices) -> None:
    """Put the companion files of a dataset in their places; those of earlier choices are replaced."""
    for kind, files in choices.companions.items():
        place = companion(dataset.pk, kind)
        if kind == "documents":
            shutil.rmtree(place, ignore_errors=True)
            for stem, file in documents_named(files).items():
                file_store(file, place / f"{stem}.json")
        else:
            place.unlink(missing_ok=True)
            file_store(files[0], place)
