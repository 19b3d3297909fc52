"""Command line: ``python -m training.data check --input FILE --output-dir FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from training.data.check import run
from training.data.limits import CheckLimits


def main(argv: list[str] | None = None) -> int:
    """Parse arguments and run the check. Returns the exit code: 0, or 2 when the input cannot be read at all."""
    default = CheckLimits()
    parser = argparse.ArgumentParser(prog="python -m training.data", description="Check a dataset file.")
    check = parser.add_subparsers(dest="command", required=True).add_parser("check", help="check one file")
    check.add_argument("--input", type=Path, required=True, help="JSONL or parquet file")
    check.add_argument("--output-dir", type=Path, required=True, help="folder for rows.jsonl and report.json")
    check.add_argument("--max-rows", type=int, default=default.max_rows, help="rows at most")
    check.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json, to count tokens exactly")
    check.add_argument("--preview", type=int, default=20, help="rows shown in the report")
    check.add_argument("--memory-mb", type=int, default=default.memory_bytes >> 20, help="address space at most")
    check.add_argument("--cpu-seconds", type=int, default=default.cpu_s, help="processor time at most")
    check.add_argument("--open-files", type=int, default=default.open_files, help="open files at most")
    args = parser.parse_args(argv)
    limits = CheckLimits(
        max_rows=args.max_rows,
        memory_bytes=args.memory_mb << 20,
        cpu_s=args.cpu_seconds,
        open_files=args.open_files,
    )
    return run(args.input, args.output_dir, limits, args.preview, args.tokenizer)


if __name__ == "__main__":
    sys.exit(main())
