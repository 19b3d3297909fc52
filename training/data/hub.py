"""Where a dataset comes from: a file, a folder of files, or a dataset of Hugging Face where that can be reached.

A hub's own code is never run: the files of the dataset are fetched and read here like any upload.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.data.files.archive import ENDINGS
from training.data.problems import MAX_HUB_BYTES
from training.errors import DataError
from training.words import _, sentence

TIMEOUT_S = 20.0
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SPLITS = ("train", "")


@contextmanager
def resolved(source: str, split: str = "") -> Iterator[Path]:
    """The file or folder to read; of a hub's dataset the file of ``split``, or of training where none is named.

    Raises ``DataError`` with a sentence about what is not there.
    """
    path = Path(source).expanduser()
    if path.exists() or not _ID.fullmatch(source):
        yield path
    else:
        folder = Path(tempfile.mkdtemp(prefix="tiltyard-hub-"))
        try:
            yield _fetched(source, folder, split)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def pick(names: list[str], where: str, split: str = "") -> str:
    """One of the names: the only one of the split (training, where none is named). Raises ``DataError``."""
    data = [name for name in names if name.endswith(ENDINGS)]
    for word in (split,) if split else _SPLITS:
        found = [name for name in data if word in (name if "/" in word else Path(name).name)]
        if len(found) == 1:
            return found[0]
    if not data:
        raise DataError(sentence(_("{where} holds no {endings} file."), where=where, endings=", ".join(ENDINGS)))
    some = ", ".join(data[:5])
    raise DataError(
        sentence(_("{where} holds {count} files, such as {some}."), where=where, count=len(data), some=some),
        hint=_("Name one of them."),
    )


def _fetched(name: str, folder: Path, split: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError

    from training.connections import CLIENT_ERRORS

    unreachable: tuple[type[Exception], ...] = (*CLIENT_ERRORS, ValueError, RuntimeError)

    try:
        info = HfApi().dataset_info(name, timeout=TIMEOUT_S, files_metadata=True)
        sizes = {entry.rfilename: int(entry.size or 0) for entry in info.siblings or []}
        picked = pick(sorted(sizes), name, split)
        if sizes[picked] > MAX_HUB_BYTES:
            raise DataError(
                sentence(
                    _("{picked} of {name} is larger than {limit} GB."),
                    picked=picked,
                    name=name,
                    limit=MAX_HUB_BYTES >> 30,
                )
            )
        hf_hub_download(name, picked, repo_type="dataset", revision=info.sha, local_dir=folder, etag_timeout=TIMEOUT_S)
    except DataError:
        raise
    except RepositoryNotFoundError as exc:
        raise DataError(
            sentence(_("Hugging Face has no public dataset {name}."), name=name),
            hint=_("Check the name, or give a file."),
        ) from exc
    except unreachable as exc:
        raise DataError(
            sentence(
                _("There is no file {name}, and the dataset {name} of Hugging Face cannot be reached ({error})."),
                name=name,
                error=type(exc).__name__,
            ),
            hint=_("Give a file, or try again with a connection."),
        ) from exc
    return folder / picked
