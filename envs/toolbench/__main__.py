"""``python -m envs.toolbench``: serve, or write tasks or demonstrations, or validate."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envs.base import ServerSettings, SettingsError
from envs.base.cli import EXIT_BAD_OPTIONS, add_server_options, serve_application
from envs.base.rows import add_carelessness, write_rows
from envs.base.settings import log
from envs.toolbench import NAME, VERSION
from envs.toolbench.answers import DIALECTS
from envs.toolbench.bench import Data, open_bench
from envs.toolbench.demonstrations import generate_demonstrations, starter_rows, task_rows
from envs.toolbench.endpoint import DEFAULT_TIMEOUT_S, EndpointSettings, read_key
from envs.toolbench.server import DEFAULT_MAX_OBSERVATION, DEFAULT_MAX_TURNS, Rules
from envs.toolbench.tasks import DIFFICULTIES
from envs.toolbench.validate import validate, validate_data

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_PORT = 8105
DEFAULT_SLOTS = 512
MAX_ROWS = 1_000_000
MAX_TURNS_LIMIT = 1000
COMMANDS = ("serve", "tasks", "demonstrations", "validate")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the first word names; without one, serve."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] not in (*COMMANDS, "-h", "--help"):
        words = ["serve", *words]
    options = _parser().parse_args(words)
    try:
        return _command(options)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_OPTIONS


def _command(options: argparse.Namespace) -> int:
    if options.command == "serve":
        return serve_application(options, partial(_application, options), name=NAME, version=VERSION)
    if options.command == "validate":
        data = _data(options)
        summary = validate(options.seeds) if data.is_empty else validate_data(data)
        print(json.dumps(summary, ensure_ascii=False, indent=2))
        return 0 if summary["ok"] else 1
    if options.command == "demonstrations":
        more = {"difficulty": options.difficulty, "careless_share": options.careless}
        rows = generate_demonstrations(options.count, options.seed, options.speech, **more)
        return write_rows(options.output, rows)
    data = _data(options)
    if options.difficulty == "starter" and not data.is_empty:
        raise SettingsError("--difficulty starter chooses queries of our own world: it goes without data.")
    write = starter_rows if options.difficulty == "starter" else task_rows
    return write_rows(options.output, write(open_bench(data).tasks, options.count, options.start, options.speech))


def _application(options: argparse.Namespace, settings: ServerSettings) -> FastAPI:
    from envs.toolbench.application import create_application  # OpenEnv takes a second to import

    endpoint = None
    if options.simulator_url is not None:
        key = read_key(options.simulator_key_file)
        timeout_s = options.simulator_timeout_s
        endpoint = EndpointSettings(options.simulator_url, options.simulator_model or "", key, timeout_s)
    bench = open_bench(_data(options), endpoint, options.dialect)
    log(logging.INFO, "bench.open", task_set=bench.tasks.name, queries=len(bench.tasks), simulator=endpoint is not None)
    return create_application(bench, settings, Rules(options.speech, options.max_turns, options.max_observation))


def _data(options: argparse.Namespace) -> Data:
    return Data(options.tools, options.cache, tuple(options.queries), options.query_ids)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.toolbench", description="The ToolBench environment.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve", help="serve /ws and /virtual; the default")
    add_server_options(command, port=DEFAULT_PORT, slots=DEFAULT_SLOTS)
    _add_data_options(command)
    _add_speech_option(command)
    _add_play_options(command)
    command = commands.add_parser("tasks", help="write dataset rows, one for each query")
    _add_data_options(command)
    _add_row_options(command)
    command.add_argument("--start", type=partial(_between, 0), default=0, help="first query (default 0)")
    command = commands.add_parser("demonstrations", help="write worked examples of our own world")
    _add_row_options(command)
    command.add_argument("--seed", type=int, default=1, help="another seed, other examples (default 1)")
    add_carelessness(command, copies=False)
    command = commands.add_parser("validate", help="check gold, bad and repeated episodes; exit code 1 on failure")
    _add_data_options(command)
    command.add_argument("--seeds", type=partial(_between, 1), default=1000, help="queries to play (default 1000)")
    return parser


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tools", type=Path, help="folder of tool documents, <Category>/<tool>.json")
    parser.add_argument("--cache", type=Path, help="folder of responses, <Category>/<tool>_for_<Category>/<api>.json")
    parser.add_argument("--queries", type=Path, action="append", default=[], help="file of queries; may be repeated")
    parser.add_argument("--query-ids", type=Path, help="file of the query ids to play (default all)")


def _add_speech_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--speech", choices=("native", "text"), default="native", help="how models speak")


def _add_row_options(parser: argparse.ArgumentParser) -> None:
    _add_speech_option(parser)
    parser.add_argument("--count", type=partial(_between, 1), default=512, help="rows (default 512)")
    parser.add_argument(
        "--difficulty",
        choices=DIFFICULTIES,
        default="full",
        help="starter: queries of our own world that one call of few APIs answers, for tiny models (default full)",
    )
    parser.add_argument("--output", required=True, help="JSONL file to write, - for standard output")


def _add_play_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-turns",
        type=partial(_between, 1, high=MAX_TURNS_LIMIT),
        default=DEFAULT_MAX_TURNS,
        help=f"an episode without Finish ends after so many turns (default {DEFAULT_MAX_TURNS})",
    )
    parser.add_argument(
        "--max-observation",
        type=partial(_between, 16),
        default=DEFAULT_MAX_OBSERVATION,
        help=f"characters of a result that the model sees (default {DEFAULT_MAX_OBSERVATION})",
    )
    parser.add_argument("--dialect", choices=DIALECTS, default=DIALECTS[0], help="whose errors /virtual answers")
    parser.add_argument("--simulator-url", help="OpenAI-compatible endpoint for APIs without records and shapes")
    parser.add_argument("--simulator-model", help="the model to ask there")
    parser.add_argument("--simulator-key-file", type=Path, help="file with the key to send there")
    parser.add_argument(
        "--simulator-timeout-s",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        help=f"a request may take so long in all (default {DEFAULT_TIMEOUT_S:g})",
    )


def _between(low: int, text: str, *, high: int = MAX_ROWS) -> int:
    value = int(text)
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"must be between {low} and {high}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
