"""The tool's datasets: GSM8K's rows from a file, a folder or Hugging Face, written where a job reads them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.data.hub import pick, resolved
from training.data.making.convert import Converted, ConvertOptions, convert
from training.data.options import ReadOptions
from training.errors import DataError
from training.rl_tool.asking import GSM8K, Format, LoadAsked, Split, ToolError

# GSM8K has a second configuration, whose files have the same names.
_WORDS = {GSM8K: "main/{split}"}


@contextmanager
def _opened(dataset: str, split: Split) -> Iterator[Path]:
    """The file with the rows of a split: of a folder the one that is named so, a file by itself whatever the split."""
    with resolved(dataset, _WORDS.get(dataset, "{split}").format(split=split)) as path:
        if path.is_dir():
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
            yield path / pick(names, str(path), split)
        else:
            yield path


def rows_write(dataset: str, split: Split, shape: Format, most: int | None, path: Path) -> int:
    """Write the first ``most`` rows of a split as conversations, and say how many there are. Raises ``ToolError``."""
    return _written(
        dataset, split, ConvertOptions(output=path, max_samples=most, reading=ReadOptions(shape=shape))
    ).rows


def dataset_load(asked: LoadAsked) -> tuple[int, list[str]]:
    """How many rows are loaded, and the names of their columns. Raises ``ToolError``."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-load-") as folder:
        path = Path(folder) / "rows.jsonl"
        options = ConvertOptions(output=path, max_samples=asked.max_samples, to=f"helloagents_{asked.format}")
        count = _written(asked.dataset, asked.split, options).rows
        with path.open("rb") as file:
            return count, list(json.loads(file.readline()))


def _written(dataset: str, split: Split, options: ConvertOptions) -> Converted:
    try:
        with _opened(dataset, split) as path:
            done = convert(path, options)
    except DataError as exc:
        raise ToolError(f"数据集加载失败: {exc.message} {exc.hint}".strip()) from exc
    if not done.rows:
        why = done.bad[0].reason if done.bad else "没有数据"
        raise ToolError(f"数据集加载失败: {dataset} ({split}): {why}")
    return done
