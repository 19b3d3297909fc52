"""Command line of imports: ``python -m training import --input FILE… --output FOLDER``, or ``--docs``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from training.data.checking.check import apply_limits, print_progress
from training.data.problems import CheckLimits

if TYPE_CHECKING:
    from training.imports.report import ImportReport

EXIT_USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """Read the files. Returns the exit code: 0, or 2 when they cannot be read."""
    args = _parser().parse_args(argv)
    if args.docs:
        from training.imports.reference import reference

        print(reference(), end="")
        return 0
    if not args.input or args.output is None:
        sys.stderr.write("Give --input and --output.\n")
        return EXIT_USAGE
    if args.progress:  # the web's child: its input is hostile
        apply_limits(_limits(args))
    from training.data.files.sources import Given
    from training.errors import DataError
    from training.imports.read import REPORT_NAME, import_files
    from training.imports.rows import weights_of
    from training.journal import JOURNAL_NAME

    if (args.output / JOURNAL_NAME).exists():
        sys.stderr.write(f"{args.output} holds a run already. Choose another folder.\n")
        return EXIT_USAGE
    files = [Path(path) for group in args.input for path in group]
    names = args.name or [path.name for path in files]
    if len(names) != len(files):
        sys.stderr.write("Give as many names as files.\n")
        return EXIT_USAGE
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        report = import_files(
            [Given(path, name) for path, name in zip(files, names, strict=True)],
            args.output,
            max_rows=args.max_rows,
            on_progress=print_progress if args.progress else None,
            weights=weights_of(args.reward_weights) if args.reward_weights else (),
            run=args.run,
        )
    except DataError as exc:
        sys.stderr.write(f"{exc.message} {exc.hint}\n")
        return EXIT_USAGE
    except OSError as exc:
        sys.stderr.write(f"{exc.filename or args.output}: {exc.strerror}.\n")
        return 1
    if not args.progress:
        _print_report(report, args.output / REPORT_NAME)
    return EXIT_USAGE if report.verdict == "rejected" else 0


def _parser() -> argparse.ArgumentParser:
    default = CheckLimits()
    parser = argparse.ArgumentParser(prog="python -m training import", description="Read runs of other trainers.")
    parser.add_argument("--input", nargs="+", action="append", help="files of one run, or zip archives of them")
    parser.add_argument("--output", type=Path, help="folder for the run; `manage.py import_run` takes it")
    parser.add_argument("--name", action="append", help="name of a file as it is shown (default: its own)")
    parser.add_argument("--max-rows", type=int, default=default.max_rows, help="rows at most")
    parser.add_argument("--reward-weights", default="", help="TRL's reward_weights, such as 1.0,0.5")
    parser.add_argument("--run", default="", help="the run that is meant, where a table holds several")
    parser.add_argument("--progress", action="store_true", help="limit this process, and print progress as JSON")
    parser.add_argument("--memory-mb", type=int, default=default.memory_bytes >> 20, help="with --progress")
    parser.add_argument("--cpu-seconds", type=int, default=default.cpu_s, help="with --progress")
    parser.add_argument("--open-files", type=int, default=default.open_files, help="with --progress")
    parser.add_argument("--docs", action="store_true", help="print the page docs/imports.md")
    return parser


def _limits(args: argparse.Namespace) -> CheckLimits:
    return CheckLimits(
        max_rows=args.max_rows, memory_bytes=args.memory_mb << 20, cpu_s=args.cpu_seconds, open_files=args.open_files
    )


def _print_report(report: ImportReport, path: Path) -> None:
    print(report.message)
    if report.verdict != "rejected":
        print(
            f"{report.tool}: {report.steps} steps, {report.metrics} metrics, {report.rollouts} rollouts in "
            f"{report.groups} groups."
        )
    for bad in report.bad[:20]:
        print(f"  {bad.file}, line {bad.line}: {bad.reason}")
    print(f"Everything that was read is in {path}.")


if __name__ == "__main__":
    sys.exit(main())
