"""``python -m envs.bfcl``: serve, or write tasks or demonstrations, or validate."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any

from envs.base.cli import EXIT_BAD_OPTIONS, add_server_options, serve
from envs.base.rows import add_carelessness, write_rows
from envs.bfcl import NAME
from envs.bfcl.package import SPLITS, VERSIONS, PackageMissing, entries, installed_version

DEFAULT_PORT = 8103
DEFAULT_SLOTS = 512
COMMANDS = ("tasks", "demonstrations", "validate")
MAX_ENTRIES = 200
MAX_TURNS = 20  # more than any entry has


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the first word names; without one, serve."""
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else None
    options = (_command_parser() if command else _server_parser()).parse_args(words)
    try:
        installed = installed_version()
    except PackageMissing as error:
        return _complain(str(error))
    if options.bfcl_version not in (None, installed):
        return _complain(f"bfcl-eval with BFCL {installed} is installed, and {options.bfcl_version} was asked for.")
    if command == "validate":
        return _validate(options)
    return _write_rows(options) if command else _serve(options)


def _server_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m envs.bfcl",
        description="Serve the BFCL multi-turn environment over OpenEnv's websocket.",
        epilog=f"Other commands: {', '.join(COMMANDS)}; each has its own --help.",
    )
    add_server_options(parser, port=DEFAULT_PORT, slots=DEFAULT_SLOTS)
    parser.add_argument("--speech", choices=("native", "text"), default="native", help="how models speak here")
    parser.add_argument("--errors", choices=("standard", "augmented"), default="standard", help="error texts")
    parser.add_argument("--compat", action="store_true", help="score as EnvTuning's code does, with its faults")
    _add_version(parser)
    return parser


def _command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.bfcl")
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="write a task row for each entry")
    shown = commands.add_parser("demonstrations", help="write the gold conversation of each entry, for SFT")
    for command in (tasks, shown):
        command.add_argument("--speech", choices=("native", "text"), default="native", help="how models speak in them")
        command.add_argument("--count", type=_count, default=MAX_ENTRIES, help="entries of each split (default 200)")
        command.add_argument("--start", type=_start, default=0, help="first entry of each split (default 0)")
        command.add_argument("--turns", type=_count, default=MAX_TURNS, help="turns of an entry at most")
        command.add_argument("--calls", type=_count, default=MAX_ENTRIES, help="calls of an entry's solution at most")
        command.add_argument("--output", required=True, help="JSONL file to write, - for standard output")
    add_carelessness(shown)
    validate = commands.add_parser("validate", help="check gold, bad and repeated episodes; exit code 1 on failure")
    for command in (tasks, shown, validate):
        command.add_argument("--split", choices=SPLITS, help="one split (default all four)")
        _add_version(command)
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bfcl-version", choices=VERSIONS, help="refuse to start with another release of bfcl-eval")


def _serve(options: argparse.Namespace) -> int:
    from envs.bfcl.application import facts
    from envs.bfcl.server import BfclEnvironment, Defaults, server_version

    defaults = Defaults(speech=options.speech, errors=options.errors, compat=options.compat)
    return serve(options, partial(BfclEnvironment, defaults), name=NAME, version=server_version(), facts=facts())


def _validate(options: argparse.Namespace) -> int:
    from envs.bfcl.application import ids_of, validate

    summary = validate(ids_of(options.split))
    print(json.dumps(summary, ensure_ascii=False, indent=2))
    return 0 if summary["ok"] else 1


def _write_rows(options: argparse.Namespace) -> int:
    from envs.bfcl.application import ids_of
    from envs.bfcl.demonstrations import generate_demonstrations
    from envs.bfcl.server import generate_rows

    splits = SPLITS if options.split is None else (options.split,)
    part = slice(options.start, options.start + options.count)
    short = [[name for name in ids_of(split) if _is_short(entries()[name], options)] for split in splits]
    ids = [name for names in short for name in names[part]]
    if options.command == "tasks":
        return write_rows(options.output, generate_rows(ids, options.speech))
    more = {"copies": options.copies, "careless_share": options.careless}
    return write_rows(options.output, generate_demonstrations(ids, options.speech, **more))


def _is_short(entry: dict[str, Any], options: argparse.Namespace) -> bool:
    calls = sum(len(turn) for turn in entry["ground_truth"])
    return len(entry["question"]) <= options.turns and calls <= options.calls


def _count(text: str) -> int:
    return _between(text, 1)


def _start(text: str) -> int:
    return _between(text, 0)


def _between(text: str, low: int) -> int:
    value = int(text)
    if not low <= value <= MAX_ENTRIES:
        raise argparse.ArgumentTypeError(f"must be between {low} and {MAX_ENTRIES}")
    return value


def _complain(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return EXIT_BAD_OPTIONS


if __name__ == "__main__":
    raise SystemExit(main())
