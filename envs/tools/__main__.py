"""``python -m envs.tools``: serve, or write tasks and demonstrations, or validate."""

from __future__ import annotations

import argparse
import json
import sys

from envs.base.cli import add_server_options, serve
from envs.base.rows import add_carelessness, write_rows
from envs.tools import NAME, VERSION
from envs.tools.demonstrations import generate_demonstrations
from envs.tools.tasks import DIFFICULTIES, generate_tasks

DEFAULT_PORT = 8101
DEFAULT_SLOTS = 512
MAX_ROWS = 1_000_000
COMMANDS = ("tasks", "demonstrations", "validate")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the first word names; without one, serve."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in COMMANDS:
        return _command(words)
    parser = argparse.ArgumentParser(
        prog="python -m envs.tools",
        description="Serve the tools environment over OpenEnv's websocket.",
        epilog=f"Other commands: {', '.join(COMMANDS)}; each has its own --help.",
    )
    add_server_options(parser, port=DEFAULT_PORT, slots=DEFAULT_SLOTS)
    options = parser.parse_args(words)
    from envs.tools.application import FACTS
    from envs.tools.server import ToolsEnvironment

    return serve(options, ToolsEnvironment, name=NAME, version=VERSION, facts=FACTS)


def _command(words: list[str]) -> int:
    options = _parser().parse_args(words)
    if options.command == "validate":
        from envs.tools.application import validate

        summary = validate(options.seeds)
        print(json.dumps(summary, ensure_ascii=False, indent=2))
        return 0 if summary["ok"] else 1
    chosen = (options.count, options.seed, options.language, options.difficulty)
    if options.command == "tasks":
        return write_rows(options.output, (task.row for task in generate_tasks(*chosen)))
    return write_rows(options.output, generate_demonstrations(*chosen, careless_share=options.careless))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.tools")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, count, seed, help_text in (
        ("tasks", 512, 0, "write dataset rows that carry their answer"),
        ("demonstrations", 2000, 1, "write worked conversations for supervised training"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--count", type=_row_count, default=count, help=f"rows (default {count})")
        command.add_argument("--seed", type=int, default=seed, help=f"same seed, same rows (default {seed})")
        command.add_argument("--language", choices=("en", "zh", "both"), default="en")
        command.add_argument("--difficulty", choices=DIFFICULTIES, default="easy")
        command.add_argument("--output", required=True, help="JSONL file to write, - for standard output")
        if name == "demonstrations":
            add_carelessness(command, copies=False)
    command = commands.add_parser("validate", help="check gold, bad and repeated episodes; exit code 1 on failure")
    command.add_argument("--seeds", type=_row_count, default=1000, help="seeds to play (default 1000)")
    return parser


def _row_count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_ROWS:
        raise argparse.ArgumentTypeError(f"must be between 1 and {MAX_ROWS}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
