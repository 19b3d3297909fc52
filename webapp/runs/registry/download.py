"""A model's files as one tar, streamed: nothing is copied first, and no more than a piece is ever in memory.

The last member, ``SHA256SUMS``, has the hash of each file as it was sent: ``sha256sum --check SHA256SUMS`` proves it.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from webapp.runs.registry.models import ModelKind, RegisteredModel

PIECE = 1 << 20
Content = bytes
SUMS, README = "SHA256SUMS", "README.md"
# What loads a model, with its card and its licence. Never a trainer's own state, which a checkpoint on the way has too:
# optimiser, schedule and random states are pickles, larger than the weights, and of use to resuming alone.
SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model", ".md")
STEMS = ("tokenizer", "license", "notice")
TRAINERS = {"manifest.json", "trainer_state.json"}
PICKLES = (".bin", ".pt", ".pth", ".pkl")


class ModelFile(NamedTuple):
    """One file of a model, as it is now: at ``path``, or where that is ``None``, ``content``."""

    name: str
    path: Path | None
    bytes: int
    content: Content = b""


def with_card(model: RegisteredModel, files: list[ModelFile], text: str) -> list[ModelFile]:
    """The files with the model card as README. One that a model brought along stays; a trainer's own, which says less
    than the card, does not."""
    if model.kind != ModelKind.RUN and any(file.name == README for file in files):
        return files
    content = text.encode()
    others = [file for file in files if file.name != README]
    return sorted([*others, ModelFile(README, None, len(content), content)], key=lambda file: file.name)


def model_files(model: RegisteredModel, part: str = "model") -> list[ModelFile]:
    """What leaves this server: the whole weights, or with ``part="adapter"`` the LoRA adapter that lies next to them.
    Of either only the files needed to load it are sent.

    Raises ``ValidationError`` where there is nothing here to send.
    """
    folder = model.adapter if part == "adapter" else model.folder
    found: list[ModelFile] = []
    there = folder is not None and folder.is_dir()
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if there else []:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and _is_model_file(entry.name):
            found.append(ModelFile(entry.name, Path(entry.path), status.st_size))
    if not found:
        words = {
            "adapter": _("This model has no adapter: it was not trained with LoRA, or its files are gone."),
            "model": _("The files of this model are not on this server."),
        }
        raise ValidationError(words.get(part, words["model"]), code="conflict")
    return found


def _is_model_file(name: str) -> bool:
    """Whether a file belongs to the model, by its name."""
    low = name.lower()
    return low not in TRAINERS and not low.endswith(PICKLES) and (low.endswith(SUFFIXES) or low.startswith(STEMS))


def tar_bytes(files: list[ModelFile], folder: str) -> int:
    """The length of the tar in bytes."""
    sums = sum(64 + 2 + len(file.name.encode()) + 1 for file in files)
    members = [*((file.name, file.bytes) for file in files), (SUMS, sums)]
    return sum(len(_tar_header(folder, name, size)) + size + -size % 512 for name, size in members) + 2 * 512


async def tar_of(files: list[ModelFile], folder: str) -> AsyncIterator[bytes]:
    """The tar, piece by piece. Raises ``OSError`` where a file has changed under it: the answer then ends too early."""
    pieces = _tar_stream(files, folder)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def _tar_stream(files: list[ModelFile], folder: str) -> Iterator[bytes]:
    sums = ""
    for file in files:
        yield _tar_header(folder, file.name, file.bytes)
        digest, left = hashlib.sha256(), file.bytes
        with io.BytesIO(file.content) if file.path is None else file.path.open("rb") as source:
            while left:
                piece = source.read(min(PIECE, left))
                if not piece:
                    raise OSError(f"{file.name} became shorter while it was sent")
                digest.update(piece)
                left -= len(piece)
                yield piece
        yield bytes(-file.bytes % 512)
        sums += f"{digest.hexdigest()}  {file.name}\n"
    yield (
        _tar_header(folder, SUMS, len(sums.encode()))
        + sums.encode()
        + bytes(-len(sums.encode()) % 512)
        + bytes(2 * 512)
    )


def _tar_header(folder: str, name: str, size: int) -> bytes:
    member = tarfile.TarInfo(f"{folder}/{name}")
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.PAX_FORMAT)
