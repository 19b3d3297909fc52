"""What a run leaves for people and their scripts beside its journal, while it runs.

``metrics/training_metrics.json``: ``[{"step": 1, "loss": …}, …]``, one object a line, whole after every step, each step
once. NaN and infinities are ``null``, as JSON has no word for them. A later attempt begins with the steps before its
own. ``logs/<what>_<time>.log``: the lines that a person sees, each with its time.

The journal is the run's record and these are made of the same events: what cannot be written here is said once on the
console and holds nothing up.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from training.config import JobConfig
from training.events import Event, Metrics, RunStarted

METRICS_PATH = Path("metrics") / "training_metrics.json"
LOGS = "logs"
_BEGIN, _BETWEEN, _END = b"[\n", b",\n", b"\n]\n"


class MetricsFile:
    """The figures of each step, as one JSON list."""

    def __init__(self, path: Path, earlier: Sequence[Path]) -> None:
        """``earlier`` are such files of the attempts before, oldest first; one that stands at ``path`` is the last."""
        self._path = path
        self._earlier = [*earlier, path]
        self._file: BinaryIO | None = None
        self._end = len(_BEGIN)
        self._last: dict[str, Any] = {}
        self._before_last = self._end

    def begin(self, step: int) -> None:
        """Start with what earlier attempts left of the steps up to ``step``. Raises ``OSError``."""
        rows: dict[int, dict[str, Any]] = {}
        for path in self._earlier:
            rows |= {row["step"]: row for row in rows_of(path)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "w+b", buffering=0)  # noqa: SIM115 - closed by close()
        self._file.write(_BEGIN + _END)
        for number in sorted(rows):
            if number <= step:
                self._append(rows[number])

    def add(self, step: int, values: dict[str, float]) -> None:
        """The figures of a step; later words on the same one go into its row. Raises ``OSError``."""
        row = {"step": step} | {name: value if math.isfinite(value) else None for name, value in values.items()}
        if self._last.get("step") == step:
            row = self._last | row
            self._end = self._before_last
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._before_last = self._end
        between = _BETWEEN if self._end > len(_BEGIN) else b""
        line = between + json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        self._file.seek(self._end)
        self._file.write(line + _END)
        self._file.truncate()
        self._end += len(line)
        self._last = row

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file; none where there is no file, or one that was cut off."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]


class Outputs:
    """Both files of one attempt. Methods without gradients leave a log alone."""

    def __init__(self, config: JobConfig, run_dir: Path, earlier: Sequence[Path] = ()) -> None:
        trains = config.method.trains
        self._metrics = (
            MetricsFile(run_dir / METRICS_PATH, [folder / METRICS_PATH for folder in earlier]) if trains else None
        )
        name = f"{'train' if trains else config.kind}_{datetime.now():%Y%m%d_%H%M%S}.log"
        self._log_path = run_dir / LOGS / name
        self._log: BinaryIO | None = None
        self._failed = False

    def take(self, event: Event, line: str) -> None:
        """What happened, and the line that people see of it, if any."""
        if self._failed:
            return
        try:
            self._write_files(event, line)
        except OSError as exc:  # a full disk: the journal's own write says so to the run
            self._failed = True
            sys.stderr.write(f"Metrics and log of the run are no longer written: {exc}\n")

    def _write_files(self, event: Event, line: str) -> None:
        if line:
            if self._log is None:
                self._log_path.parent.mkdir(parents=True, exist_ok=True)
                self._log = open(self._log_path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
            self._log.write(f"{datetime.fromtimestamp(event.t):%Y-%m-%d %H:%M:%S}  {line}\n".encode())
        if self._metrics is not None and isinstance(event, RunStarted):
            self._metrics.begin(event.from_step)
        if self._metrics is not None and isinstance(event, Metrics):
            self._metrics.add(event.step, event.values)

    def close(self) -> None:
        """Close both files."""
        if self._log is not None:
            self._log.close()
        if self._metrics is not None:
            self._metrics.close()
