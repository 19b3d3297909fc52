"""Inspection of a model folder before any library opens it: everything is read as data, nothing is run.

A model repository is hostile until checked. Refused are code (``*.py``, ``auto_map``), pickles in any of their names,
kernels and attention implementations chosen by the config, links that leave the folder, and oversized JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from training.errors import ModelError

MAX_CONFIG_BYTES = 1 << 20
MAX_TOKENIZER_BYTES = 256 << 20
MAX_HEADER_BYTES = 64 << 20
MAX_FILES = 2000
MAX_DEPTH = 32
PICKLES = {
    ".bin",
    ".pt",
    ".pth",
    ".pkl",
    ".pickle",
    ".ckpt",
    ".joblib",
    ".npy",
    ".npz",
    ".h5",
    ".msgpack",
    ".model_state",
}
STATES = {"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"}
VERL = "verl"
"""What a checkpoint has for resuming: these files, or all below this folder. Nothing that loads a model opens them; a
run that resumes does, from its own checkpoints, where they are as their manifest says."""
CODE = {".py", ".pyc", ".so", ".pyd", ".dll", ".dylib", ".sh", ".cu", ".cpp"}
FORBIDDEN_KEYS = {
    "auto_map",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_experts_implementation_internal",
    "use_kernels",
    "kernel_config",
    "custom_pipelines",
    "trust_remote_code",
}
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_NAMED = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([BM])(?![a-z0-9])", re.IGNORECASE)
_HINT = "Use a folder with config.json, tokenizer files and *.safetensors, and nothing else that runs."


class ModelFacts(NamedTuple):
    """The content of a checked folder. ``parameters`` counts the weights' elements, from the safetensors headers."""

    architecture: str
    model_type: str
    parameters: int
    bytes: int


def load_config(folder: Path) -> Any:
    """The config of transformers in a checked folder; no code of the folder runs. Raises ``ModelError``."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as exc:  # anything that a broken config makes the library raise
        raise ModelError(f"The model's config cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from exc


def check_model_folder(folder: Path, *, links_within: Path | None = None) -> ModelFacts:
    """Check a local model folder. Raises ``ModelError`` with the first thing that is wrong.

    ``links_within`` allows symbolic links to files inside that folder, as the Hugging Face cache has them.
    """
    if not folder.is_dir():
        raise ModelError(f"There is no model folder {folder}.", hint="Fix model.source.")
    files = _list_files(folder, links_within)
    for path in files:
        suffix = path.suffix.lower()
        if suffix in CODE:
            raise ModelError(f"The model folder holds code: {path.name}.", hint=_HINT)
        if suffix in PICKLES and not _is_state(path.relative_to(folder)):
            raise ModelError(f"The model folder holds a format that can run code: {path.name}.", hint=_HINT)
    for path in files:
        if path.suffix == ".json" and not path.name.endswith(".index.json"):
            limit = MAX_TOKENIZER_BYTES if path.name in ("tokenizer.json", "vocab.json") else MAX_CONFIG_BYTES
            _check_keys(read_json(path, limit), path.name)
    config = read_json(folder / "config.json", MAX_CONFIG_BYTES)
    if not isinstance(config, dict):
        raise ModelError("config.json is not a JSON object.", hint=_HINT)
    # Libraries load those next to the config; a checkpoint may hold other weights in folders of their own.
    weights = [path for path in files if path.suffix == ".safetensors" and path.parent == folder]
    if not weights:
        raise ModelError("The model folder has no *.safetensors weights.", hint=_HINT)
    parameters = sum(count_elements(path) for path in weights)
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else ""
    return ModelFacts(str(named), str(config.get("model_type", "")), parameters, sum(p.stat().st_size for p in weights))


def read_json(path: Path, limit: int) -> Any:
    """A JSON file as data. Raises ``ModelError`` if it is missing, larger than ``limit`` bytes or not JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit + 1)
    except OSError as exc:
        raise ModelError(f"{path.name} cannot be read: {exc.strerror}.", hint=_HINT) from exc
    if len(data) > limit:
        raise ModelError(f"{path.name} is larger than {limit >> 20} MB.", hint=_HINT)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ModelError(f"{path.name} is not valid JSON.", hint=_HINT) from exc


def folder_of(source: str) -> Path | None:
    """The files of a model on this machine: its folder, or the newest snapshot of a Hugging Face id; ``None`` where
    there are none."""
    if source.startswith("/"):
        return Path(source)
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    root = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    found = root.glob(f"models--{source.replace('/', '--')}/snapshots/*")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def parameters_of(source: str) -> int | None:
    """How many parameters a folder's weights have, or those of a Hugging Face id: by its files if they are here, else
    by its name (``Qwen3-0.6B``). ``None`` where neither says it."""
    folder = folder_of(source)
    with suppress(ModelError, OSError):
        if folder is not None and (total := sum(count_elements(path) for path in folder.glob("*.safetensors"))):
            return total
    named = _NAMED.search(source.rsplit("/", 1)[-1])
    return round(float(named[1]) * (1e9 if named[2] in "bB" else 1e6)) if named else None


def count_elements(path: Path) -> int:
    """Elements of all tensors of a safetensors file, from its header; offsets must lie inside the file."""
    return sum(_by_format(path).values())


def stored_dtype(folder: Path) -> str:
    """The precision that most of a folder's weights are stored in, as torch calls it; empty for one that we do not
    write, such as that of a quantised model."""
    found: Counter[str] = Counter()
    for path in folder.glob("*.safetensors"):
        found += _by_format(path)
    return DTYPES.get(found.most_common(1)[0][0], "") if found else ""


def _by_format(path: Path) -> Counter[str]:
    """Elements of a safetensors file by number format."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise ModelError(f"{path.name} is not a safetensors file.", hint=_HINT)
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as exc:
            raise ModelError(f"{path.name} has a broken header.", hint=_HINT) from exc
    if not isinstance(header, dict):
        raise ModelError(f"{path.name} has a broken header.", hint=_HINT)
    found: Counter[str] = Counter()
    for name, entry in header.items():
        if name != "__metadata__":
            count = _elements(path, entry, size - 8 - length)
            found[str(entry.get("dtype"))] += count
    return found


def _elements(path: Path, entry: Any, room: int) -> int:
    try:
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        sound = all(isinstance(n, int) and n >= 0 for n in (begin, end, *shape)) and begin <= end <= room
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise ModelError(f"{path.name} is cut off or its header lies.", hint=_HINT)
    count = 1
    for length in shape:
        count *= length
    if count > max(0, end - begin) * 2:  # the smallest number formats have half a byte an element
        raise ModelError(f"{path.name} is cut off or its header lies.", hint=_HINT)
    return count


def _is_state(path: Path) -> bool:
    return path.parts[0] == VERL if len(path.parts) > 1 else path.name in STATES


def _list_files(folder: Path, links_within: Path | None) -> list[Path]:
    files: list[Path] = []
    for root, directories, names in os.walk(folder, followlinks=False):
        for name in directories + names:
            path = Path(root) / name
            if path.is_symlink() and not (links_within and path.resolve().is_relative_to(links_within.resolve())):
                raise ModelError(f"The model folder holds a link: {name}.", hint="Copy the file instead of linking it.")
        for name in names:
            path = Path(root) / name
            if not path.is_file():
                raise ModelError(f"{name} is not a plain file.", hint=_HINT)
            files.append(path)
        if len(files) > MAX_FILES:
            raise ModelError(f"The model folder has more than {MAX_FILES} files.", hint=_HINT)
    return files


def _check_keys(value: Any, name: str, depth: int = 0) -> None:
    """Refuse keys that make a library import or fetch code, at any depth; null values do nothing and pass."""
    if name in ("tokenizer.json", "vocab.json", "added_tokens.json"):
        return  # vocabularies: their keys are words
    if depth > MAX_DEPTH:
        raise ModelError(f"{name} is nested deeper than {MAX_DEPTH} levels.", hint=_HINT)
    if isinstance(value, dict):
        for key, item in value.items():
            if key in FORBIDDEN_KEYS and item not in (None, False):
                raise ModelError(f"{name} asks for code through `{key}`.", hint=_HINT)
            _check_keys(item, name, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_keys(item, name, depth + 1)
