"""``python -m envs.webshop``: serve, write tasks, demonstrations or a catalogue, validate, or play the baseline."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envs.base import ServerSettings, SettingsError
from envs.base.cli import add_server_options, serve_application
from envs.base.rows import add_carelessness, write_rows
from envs.base.settings import log
from envs.webshop import NAME, VERSION
from envs.webshop.baseline import run_baseline
from envs.webshop.catalogue import CatalogueError, load_catalogue
from envs.webshop.demonstrations import generate_demonstrations
from envs.webshop.generator import DEFAULT_PRODUCTS, DIFFICULTIES, MAX_PRODUCTS, generated_catalogue, write_catalogue
from envs.webshop.reward import GOAL_KINDS, VARIANTS
from envs.webshop.session import Shop
from envs.webshop.tasks import task_rows
from envs.webshop.validate import validate

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_PORT = 8104
DEFAULT_SLOTS = 512
MAX_ROWS = 10_000_000
EXIT_FAILED, EXIT_BAD_OPTIONS = 1, 2
COMMANDS = ("serve", "tasks", "demonstrations", "validate", "baseline", "generate")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the first word names; without one, serve."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] not in (*COMMANDS, "-h", "--help"):
        words = ["serve", *words]
    options = _parser().parse_args(words)
    if options.command == "serve":
        return serve_application(options, partial(_application, options), name=NAME, version=VERSION)
    try:
        return _command(options)
    except CatalogueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_OPTIONS


def _application(options: argparse.Namespace, settings: ServerSettings) -> FastAPI:
    from envs.webshop.application import create_application  # OpenEnv takes a second to import

    began = time.monotonic()
    try:
        shop = open_shop(options)
    except CatalogueError as error:
        raise SettingsError(str(error)) from error
    log(
        logging.INFO,
        "shop.open",
        catalogue=shop.catalogue.name,
        products=len(shop.catalogue.products),
        goals=len(shop.goals),
        seconds=round(time.monotonic() - began, 2),
    )
    return create_application(shop, settings)


def open_shop(options: argparse.Namespace) -> Shop:
    """The shop that the options name; raises ``CatalogueError``."""
    if options.data is not None:
        catalogue = load_catalogue(options.data)
    else:
        catalogue = generated_catalogue(options.products, options.catalogue_seed, options.difficulty)
    return Shop(catalogue, goals=options.goals, reward=options.reward)


def _command(options: argparse.Namespace) -> int:
    if options.command == "generate":
        return _generate(options)
    shop = open_shop(options)
    if options.command == "tasks":
        return write_rows(options.output, task_rows(shop, options.count, options.start))
    if options.command == "demonstrations":
        ids = range(options.start, min(options.start + options.count, len(shop.goals)))
        more = {"copies": options.copies, "careless_share": options.careless}
        return write_rows(options.output, generate_demonstrations(shop, ids, options.speech, **more))
    if options.command == "baseline":
        last = min(options.start + options.count, len(shop.goals))
        result = run_baseline(shop, range(options.start, last))
        print(json.dumps({"catalogue": shop.catalogue.name, **asdict(result)}, indent=2))
        return 0
    summary = validate(shop, options.seeds)
    print(json.dumps(summary, ensure_ascii=False, indent=2))
    return 0 if summary["ok"] else EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.webshop", description="The WebShop environment.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve", help="serve /ws and AgentGym's routes; the default")
    add_server_options(command, port=DEFAULT_PORT, slots=DEFAULT_SLOTS)
    _add_shop_options(command)
    command = commands.add_parser("tasks", help="write dataset rows, one for each session id")
    _add_range_options(command, count=512)
    command.add_argument("--output", required=True, help="JSONL file to write, - for standard output")
    command = commands.add_parser("demonstrations", help="write visits that buy what is wanted, for SFT")
    _add_range_options(command, count=512)
    command.add_argument("--speech", choices=("native", "text"), default="native", help="how models speak in them")
    add_carelessness(command)
    command.add_argument("--output", required=True, help="JSONL file to write, - for standard output")
    command = commands.add_parser("baseline", help="play the three-rule policy and print its figures")
    _add_range_options(command, count=300)
    command = commands.add_parser("validate", help="check perfect, bad and repeated visits; exit code 1 on failure")
    _add_shop_options(command)
    command.add_argument("--seeds", type=_count, default=200, help="visits to play (default 200)")
    command = commands.add_parser("generate", help="write a catalogue in the format of WebShop's files")
    _add_size_options(command)
    command.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def _add_size_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--products", type=_products, default=DEFAULT_PRODUCTS, help="generated (default 1000)")
    parser.add_argument("--catalogue-seed", type=int, default=0, help="same seed, same products (default 0)")
    parser.add_argument(
        "--difficulty",
        choices=DIFFICULTIES,
        default="full",
        help="starter: short texts for tiny models (default full)",
    )


def _add_shop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder with WebShop's files (default: a generated catalogue)")
    _add_size_options(parser)
    parser.add_argument("--goals", choices=GOAL_KINDS, default="synthetic", help="whose instructions are played")
    parser.add_argument(
        "--reward", choices=VARIANTS, default="upstream", help="upstream's formula, or with its option bug fixed"
    )


def _add_range_options(parser: argparse.ArgumentParser, *, count: int) -> None:
    _add_shop_options(parser)
    parser.add_argument("--count", type=_count, default=count, help=f"session ids (default {count})")
    parser.add_argument("--start", type=_start, default=0, help="first session id (default 0)")


def _between(text: str, low: int, high: int) -> int:
    value = int(text)
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"must be between {low} and {high}")
    return value


def _count(text: str) -> int:
    return _between(text, 1, MAX_ROWS)


def _start(text: str) -> int:
    return _between(text, 0, MAX_ROWS)


def _products(text: str) -> int:
    return _between(text, 1, MAX_PRODUCTS)


def _generate(options: argparse.Namespace) -> int:
    try:
        write_catalogue(options.output, options.products, options.catalogue_seed, options.difficulty)
    except OSError as error:
        sys.stderr.write(f"Cannot write {options.output}: {error.strerror}.\n")
        return EXIT_BAD_OPTIONS
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
