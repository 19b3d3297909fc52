"""How fast a dataset is checked and converted: ``python benchmarks/data.py [--rows 100000]``.

Rows are conversations of 1 kB in JSON Lines, on one core. Prints JSON: rows a second of processor time of the whole
check (read, judge, normalise, write, count, hash), of the conversion to verl's rows, and of ``json.loads`` alone, which
is the limit of any reader in Python; and the peak memory of the check's process. Each figure is the best of five rounds
in which all three take their turn, because the machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

ROUNDS = 5
TARGETS = {"check_rows_s": 30_000, "memory_mib": 512}
PROGRAM = """
import sys, time, json
from pathlib import Path
from training.data.checking.check import check_file
from training.data.making import ConvertOptions, convert
source, out = Path(sys.argv[1]), Path(sys.argv[2])
began = time.process_time()
report = check_file(source, out)
checked = time.process_time()
done = convert(source, ConvertOptions(output=out / "rows.verl.jsonl", to="verl"))
converted = time.process_time()
status = Path("/proc/self/status").read_text()
print(json.dumps([report.rows, checked - began, done.rows, converted - checked, status]))
"""


def _row(number: int) -> str:
    question = f"Row {number}: what is the weather in the town by the river, and should I take an umbrella? "
    answer = "It rains in the morning and clears up by noon, so take one if you leave before ten o'clock. "
    messages = [
        {"role": "system", "content": "You are a helpful assistant. " * 5},
        {"role": "user", "content": question * 2},
        {"role": "assistant", "content": answer * 2},
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer * 3},
    ]
    return json.dumps({"messages": messages, "id": number})


def _round(path: Path, folder: str) -> list[Any]:
    """The figures of one process, and the seconds of ``json.loads`` alone right after it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), folder], cwd=ROOT, capture_output=True, text=True, check=True
    )
    began = time.process_time()
    with path.open("rb") as lines:
        for line in lines:
            json.loads(line)
    return [*json.loads(done.stdout), time.process_time() - began]


def measure(rows: int) -> dict[str, Any]:
    """Check and convert a file of so many rows in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.jsonl"
        with path.open("w") as file:
            file.writelines(_row(number) + "\n" for number in range(rows))
        size = path.stat().st_size
        rounds = [_round(path, folder) for _ in range(ROUNDS)]
    checked, _check, converted, _convert, status, _loads = rounds[-1]
    check_s, convert_s, loads_s = (min(item[place] for item in rounds) for place in (1, 3, 5))
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    return {
        "benchmark": "data.check_and_convert",
        "rows": rows,
        "row_bytes": size // rows,
        "check_rows_s": round(checked / check_s),
        "convert_rows_s": round(converted / convert_s),
        "json_loads_rows_s": round(rows / loads_s),
        "memory_mib": round(int(peak[1]) / 1024) if peak else None,
        "targets": TARGETS,
    }


def main() -> int:
    """Measure one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    print(json.dumps(measure(parser.parse_args().rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
