"""Command line of datasets: ``python -m training.data check|convert|preview|problems|docs``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from training.data.checking.check import ROWS_NAME, Ask, apply_limits, run
from training.data.files.sources import together
from training.data.formats.gsm8k import LANGUAGES, MAX_START, MAX_STEPS, word_problems
from training.data.options import CheckOptions, Cut, ReadOptions
from training.data.problems import PREVIEW_LIMITS, CheckLimits
from training.errors import TiltyardError

EXIT_USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """Parse arguments and do it. Returns the exit code: 0, or 2 when the input cannot be read at all."""
    args = _parser().parse_args(argv)
    try:
        return int(COMMANDS[args.command](args))
    except TiltyardError as exc:
        sys.stderr.write(f"{exc.message} {exc.hint}".strip() + "\n")
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        sys.stderr.write(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}\n")
    except OSError as exc:
        sys.stderr.write(f"{exc.filename or 'The output'}: {exc.strerror}.\n")
    return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training data", description="Check and convert datasets.")
    commands = parser.add_subparsers(dest="command", required=True)
    default = CheckLimits()
    check = commands.add_parser("check", help="check one file")
    check.add_argument(
        "--input", type=Path, nargs="+", required=True, help="dataset file, folder or archive; several are one dataset"
    )
    check.add_argument("--output-dir", type=Path, required=True, help="folder for rows.jsonl and report.json")
    check.add_argument("--max-rows", type=int, default=default.max_rows, help="rows at most")
    check.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json, to count tokens exactly")
    check.add_argument("--preview", type=int, default=20, help="rows shown in the report")
    check.add_argument("--memory-mb", type=int, default=default.memory_bytes >> 20, help="address space at most")
    check.add_argument("--cpu-seconds", type=int, default=default.cpu_s, help="processor time at most")
    check.add_argument("--open-files", type=int, default=default.open_files, help="open files at most")
    check.add_argument("--reading", default="{}", help="how the file is read, as JSON (docs/data.md)")
    check.add_argument("--checking", default="{}", help="what is checked, as JSON (docs/data.md)")
    check.add_argument("--ask", choices=get_args(Ask), default="never", help="when to stop and ask how it is read")
    _convert_options(commands.add_parser("convert", help="convert a file, maybe in two parts"))
    preview = commands.add_parser("preview", help="show the first rows as they would come out")
    preview.add_argument("--input", required=True, help="dataset file")
    preview.add_argument("--rows", type=int, default=10, help="rows at most")
    preview.add_argument("--limited", action="store_true", help="for a file of a stranger, under limits; all as JSON")
    preview.add_argument("--reading", default="{}", help="with --limited: how the file is read, as JSON")
    _reading_options(preview)
    problems = commands.add_parser("problems", help="write our own word problems in GSM8K's form")
    problems.add_argument("--count", type=int, default=1000, help="rows (default 1000)")
    problems.add_argument("--seed", type=int, default=0, help="same seed, same rows (default 0)")
    problems.add_argument("--language", choices=LANGUAGES, default="en", help="of the questions (default en)")
    problems.add_argument("--steps", type=int, choices=range(1, MAX_STEPS + 1), default=2, help="calculations in each")
    problems.add_argument("--shape", choices=["rl", "sft"], default="rl", help="question and answer, or worked for SFT")
    problems.add_argument(
        "--largest",
        type=int,
        choices=range(2, MAX_START + 1),
        metavar=f"2..{MAX_START}",
        default=MAX_START,
        help=f"largest number of a question (default {MAX_START})",
    )
    problems.add_argument("--careless", type=float, default=0.0, help="share of SFT rows that calculate nothing")
    problems.add_argument("--output", type=Path, required=True, help="JSONL file to write")
    commands.add_parser("docs", help="print the page docs/data.md")
    return parser


def _reading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="", help="name of the format (default: recognised)")
    parser.add_argument("--cut", choices=[cut.value for cut in Cut], default=Cut.NONE.value, help="where rows are cut")
    parser.add_argument("--shape", choices=["rl", "sft"], default="rl", help="whether answers become turns")
    parser.add_argument("--mapping", default="", help='columns as JSON, such as {"prompt": "question"}')
    for name, text in (("answers", "BFCL answers"), ("documents", "BFCL documents"), ("ids", "StableToolBench ids")):
        parser.add_argument(f"--{name}", type=Path, help=f"{text} that go with the input")


def _convert_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", required=True, help="file, folder, or id of a Hugging Face dataset")
    parser.add_argument("--output", type=Path, help="where the rows go")
    parser.add_argument("--split", action="store_true", help="shuffle with seed 42 and write two parts")
    parser.add_argument("--train_output", "--train-output", type=Path, help="where the first part goes")
    parser.add_argument("--val_output", "--val-output", type=Path, help="where the second part goes")
    parser.add_argument("--train_ratio", "--train-ratio", type=float, default=0.9, help="share of the first part")
    parser.add_argument("--max_samples", "--max-samples", type=int, help="rows at most, from the beginning")
    parser.add_argument("--to", default="", help="format to write: verl, jsonl or a name (default: by the ending)")
    _reading_options(parser)


def _reading(args: argparse.Namespace) -> ReadOptions:
    given = {"format": args.format, "cut": args.cut, "shape": args.shape}
    paths = {name: getattr(args, name) for name in ("answers", "documents", "ids") if getattr(args, name)}
    mapping = {"mapping": _json(args.mapping, "--mapping")} if args.mapping else {}
    return ReadOptions.model_validate({**given, **paths, **mapping})


def _json(text: str, flag: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise TiltyardError(f"{flag} is not JSON.") from None


def _check(args: argparse.Namespace) -> int:
    results = (args.output_dir / ROWS_NAME).resolve()
    if any(results == path.resolve() or path.resolve() in results.parents for path in args.input):
        raise TiltyardError("The input would be overwritten.", hint="Choose another output folder.")
    limits = CheckLimits(
        max_rows=args.max_rows,
        memory_bytes=args.memory_mb << 20,
        cpu_s=args.cpu_seconds,
        open_files=args.open_files,
    )
    reading = ReadOptions.model_validate_json(args.reading)
    checking = CheckOptions.model_validate_json(args.checking)
    with together(args.input) as source:
        return run(source, args.output_dir, limits, args.preview, args.tokenizer, reading, checking, args.ask)


def _convert(args: argparse.Namespace) -> int:
    from training.data.files.sources import resolved
    from training.data.making.conversion import ConvertOptions, convert

    with resolved(args.input) as source:
        done = convert(
            source,
            ConvertOptions(
                output=args.output,
                split=args.split,
                train_output=args.train_output,
                val_output=args.val_output,
                train_ratio=args.train_ratio,
                max_samples=args.max_samples,
                to=args.to,
                reading=_reading(args),
            ),
        )
    print(json.dumps(done.model_dump(mode="json"), ensure_ascii=False, indent=1))
    return 0 if done.rows else EXIT_USAGE


def _preview(args: argparse.Namespace) -> int:
    from training.data.checking.check import preview, safe_preview
    from training.data.files.sources import resolved

    if args.limited:
        apply_limits(PREVIEW_LIMITS)
        reading = ReadOptions.model_validate_json(args.reading)
        print(safe_preview(Path(args.input), reading, args.rows).model_dump_json())
        return 0
    with resolved(args.input) as source:
        shown = preview(source, _reading(args), args.rows)
    body = shown.model_dump(mode="json", include={"format", "reasons", "rows", "bad"})
    print(json.dumps(body, ensure_ascii=False, indent=1))
    return 0 if shown.rows else EXIT_USAGE


def _docs(args: argparse.Namespace) -> int:
    from training.data.reference import reference

    print(reference(), end="")
    return 0


def _problems(args: argparse.Namespace) -> int:
    rows = word_problems(
        args.count,
        seed=args.seed,
        language=args.language,
        steps=args.steps,
        shape=args.shape,
        largest=args.largest,
        careless=args.careless,
    )
    with args.output.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return 0


COMMANDS = {"check": _check, "convert": _convert, "preview": _preview, "problems": _problems, "docs": _docs}


if __name__ == "__main__":
    sys.exit(main())
