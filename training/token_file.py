"""Values of each token of a step's rollouts, in one file a step: ``tokens/step-000042.zip`` next to the journal.

A member for each group, so that a rollout is read without most of the others. Values are coded in a byte each, because
people look at them by colour: a log-probability and an entropy by the square root (fine near 0, where most are), a
ratio by its logarithm, an advantage by the square root of its share of the largest. Nothing is trained on these values.

What an id spells is written once an attempt into ``tokens/spelling.jsonl``; an id that is a piece of a character spells
its bytes in hexadecimal digits.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER, SPELLING = "tokens", "spelling.jsonl"
MOST_NATS, MOST_ENTROPY = 20.0, 12.0
"""Where the codes of log-probabilities and entropies end; ln(160,000), the entropy of knowing nothing, is 12."""
RATIO_OCTAVES = 4.0
SAMPLED, LEARNED, SEEN = 1, 2, 4
"""Flags of a token: the model sampled it; it is learned from; the trainer's forward saw it."""
_FAST = 1  # deflate's level: the bytes differ by a tenth from level 9's, the time by ten
_SIZE = 4
SPELLING_BYTES = 64 << 20
MEMBER_BYTES = 256 << 20

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Head = dict[str, Any]


@dataclass(frozen=True)
class TokenValues:
    """One rollout's tokens. All but ``prompt`` have one entry for each token after the prompt.

    ``flags`` are sums of ``SAMPLED``, ``LEARNED`` and ``SEEN``. ``logprob`` is the sampler's, in nats; ``entropy`` and
    ``ratio`` (the trainer's probability over the sampler's) hold where ``SEEN`` is set. ``advantage`` is one figure of
    the whole rollout, or one for each token; ``None`` where the trainer made none.
    """

    prompt: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    flags: Codes
    logprob: Floats
    entropy: Floats
    ratio: Floats
    advantage: float | Floats | None = None


def step_file(folder: Path, step: int) -> Path:
    """The file of a step below an attempt's folder."""
    return folder / FOLDER / f"step-{step:06d}.zip"


def write_step(folder: Path, step: int, rollouts: Iterable[tuple[int, int, TokenValues]]) -> Path:
    """Write a step's rollouts, each with its group and index; the file appears whole or not at all."""
    path, held = step_file(folder, step), list(rollouts)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    groups: dict[int, list[tuple[Head, bytes]]] = {}
    for (group, index, _values), (head, planes) in zip(held, _coded([values for _g, _i, values in held]), strict=True):
        groups.setdefault(group, []).append((head | {"index": index}, planes))
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=_FAST) as archive:
        for group, members in groups.items():
            heads = json.dumps([head for head, _planes in members]).encode()
            size = len(heads).to_bytes(_SIZE, "little")
            archive.writestr(str(group), b"".join([size, heads, *(planes for _head, planes in members)]))
    os.replace(part, path)
    return path


def read_rollout(folder: Path, step: int, group: int, index: int) -> TokenValues | None:
    """One rollout's values; ``None`` where they are not kept or their file cannot be read."""
    try:
        with zipfile.ZipFile(step_file(folder, step)) as archive:
            found = archive.getinfo(str(group))
            return _decoded(archive.read(found), index) if found.file_size <= MEMBER_BYTES else None
    except (OSError, EOFError, LookupError, TypeError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def keep_newest(folder: Path, limit: int) -> int:
    """Delete the oldest steps until the files below an attempt's folder hold at most ``limit`` bytes; what they hold
    then."""
    files = sorted((folder / FOLDER).glob("step-*.zip"), reverse=True)
    total, full = 0, False
    for path in files:
        size = path.stat().st_size
        full = full or total + size > limit
        if full:
            path.unlink(missing_ok=True)
        else:
            total += size
    return total


class Spelling:
    """Writes once what each id spells. ``spell`` gives the bytes of an id."""

    def __init__(self, folder: Path, spell: Callable[[int], bytes]) -> None:
        self._path, self._spell = folder / FOLDER / SPELLING, spell
        self._written: set[int] = set(spelled(folder))

    def tell(self, ids: Iterable[int]) -> None:
        """Append the ids that were not written yet."""
        new = sorted(set(ids) - self._written)
        if not new:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([number, *_text_or_hex(self._spell(number))])}\n" for number in new)
        self._written.update(new)


def spelled(folder: Path, wanted: set[int] | None = None) -> dict[int, tuple[str, bool]]:
    """What ids spell, each with whether that is a text: else it is bytes in hexadecimal digits. A torn line is left
    out."""
    found: dict[int, tuple[str, bool]] = {}
    try:
        with (folder / FOLDER / SPELLING).open("rb") as file:
            lines = file.read(SPELLING_BYTES).splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            number, text, whole = json.loads(line)
        except ValueError:
            continue
        if wanted is None or number in wanted:
            found[number] = str(text), bool(whole)
    return found


def _text_or_hex(spelling: bytes) -> tuple[str, bool]:
    try:
        return spelling.decode(), True
    except UnicodeDecodeError:
        return spelling.hex(), False


def _coded(held: list[TokenValues]) -> list[tuple[Head, bytes]]:
    """The head of each rollout, and its planes. Codes of all are made at once: most have few tokens."""
    if not held:
        return []
    flags = np.concatenate([values.flags for values in held])
    logprob = _root_code(-np.concatenate([values.logprob for values in held]), MOST_NATS)
    entropy = _root_code(np.concatenate([values.entropy for values in held]), MOST_ENTROPY)
    ratio = _ratio_code(np.concatenate([values.ratio for values in held]))
    found, begin = [], 0
    for values in held:
        end = begin + len(values.ids)
        planes = [_three_bytes(values.prompt), _three_bytes(values.ids)]
        planes += [plane[begin:end].tobytes() for plane in (flags, logprob, entropy, ratio)]
        head: Head = {"prompt": len(values.prompt), "tokens": len(values.ids)}
        if isinstance(values.advantage, np.ndarray):
            head["most"] = float(np.abs(values.advantage).max(initial=0.0))
            planes.append(_signed_code(values.advantage, head["most"]).tobytes())
        elif values.advantage is not None:
            head["advantage"] = float(values.advantage)
        found.append((head, b"".join(planes)))
        begin = end
    return found


def _decoded(data: bytes, index: int) -> TokenValues | None:
    """One rollout of a group. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what was not written here."""
    begin = _SIZE + int.from_bytes(data[:_SIZE], "little")
    heads: list[Head] = json.loads(data[_SIZE:begin])
    sizes = [_sizes(head) for head in heads]
    if min(map(min, sizes), default=0) < 0 or begin + sum(map(sum, sizes)) != len(data):
        raise ValueError("the planes of a group do not fit its header")
    for head, own in zip(heads, sizes, strict=True):
        if head["index"] == index:
            return _values(data, begin, head, own)
        begin += sum(own)
    return None


def _sizes(head: Head) -> list[int]:
    prompt, count = int(head["prompt"]), int(head["tokens"])
    return [3 * prompt, 3 * count, count, count, count, count, count if "most" in head else 0]


def _values(data: bytes, begin: int, head: Head, sizes: list[int]) -> TokenValues:
    ends = np.cumsum([begin, *sizes]).tolist()
    plane = [np.frombuffer(data, np.uint8, size, start) for size, start in zip(sizes, ends, strict=False)]
    return TokenValues(
        prompt=_from_three(plane[0]),
        ids=_from_three(plane[1]),
        flags=plane[2],
        logprob=-_from_root(plane[3], MOST_NATS),
        entropy=_from_root(plane[4], MOST_ENTROPY),
        ratio=_from_ratio(plane[5]),
        advantage=_from_signed(plane[6], float(head["most"])) if "most" in head else head.get("advantage"),
    )


def _three_bytes(ids: NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(ids, "<u4").view(np.uint8).reshape(-1, 4)[:, :3].T.tobytes()


def _from_three(plane: Codes) -> NDArray[np.uint32]:
    low, middle, high = plane.reshape(3, -1).astype(np.uint32)
    return low | middle << np.uint32(8) | high << np.uint32(16)


def _root_code(values: Floats, most: float) -> Codes:
    share = np.clip(np.nan_to_num(values, nan=most, posinf=most), 0.0, most) / most
    return np.rint(255 * np.sqrt(share)).astype(np.uint8)


def _from_root(codes: Codes, most: float) -> Floats:
    return (most * (codes.astype(np.float32) / 255) ** 2).astype(np.float32)


def _ratio_code(ratios: Floats) -> Codes:
    octaves = np.log2(np.clip(np.nan_to_num(ratios, nan=1.0), 2.0**-RATIO_OCTAVES, 2.0**RATIO_OCTAVES))
    return (128 + np.rint(octaves * 127 / RATIO_OCTAVES)).astype(np.uint8)


def _from_ratio(codes: Codes) -> Floats:
    return np.exp2((codes.astype(np.float32) - 128) * RATIO_OCTAVES / 127).astype(np.float32)


def _signed_code(values: Floats, most: float) -> Codes:
    share = np.sqrt(np.abs(values) / most) if most else np.zeros_like(values)
    return (128 + np.rint(127 * np.sign(values) * share)).astype(np.uint8)


def _from_signed(codes: Codes, most: float) -> Floats:
    share = (codes.astype(np.float32) - 128) / 127
    return (most * np.sign(share) * share**2).astype(np.float32)


def flags_of(sampled: Sequence[int] | Codes, learned: Sequence[int] | int, seen: int) -> Codes:
    """Flags from masks of 0 and 1; ``learned`` and ``seen`` may hold for all of them alike."""
    own = np.asarray(sampled, np.uint8)
    return (own * SAMPLED + np.asarray(learned, np.uint8) * own * LEARNED + own * seen * SEEN).astype(np.uint8)
