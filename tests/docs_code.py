"""What the code says of itself, for the tests of the documents: error codes, endpoints, command lines."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from training.errors import TiltyardError

ROOT = Path(__file__).resolve().parent.parent
CLASS = re.compile(r"^class \w+\((\w+)[,)]", re.M)


@functools.cache
def sources(*folders: str) -> dict[Path, str]:
    """The text of every Python file below the folders."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in paths if "migrations" not in path.parts}


@functools.cache
def error_classes() -> frozenset[type[TiltyardError]]:
    """``TiltyardError`` and every subclass, wherever it is defined."""
    known: set[str] = set()
    while len(known) < len(known := {found.__name__ for found in _below(TiltyardError)}):
        for path, text in sources("training", "webapp").items():
            if known & set(CLASS.findall(text)):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return frozenset(f for f in _below(TiltyardError) if f.__module__.split(".")[0] in ("training", "webapp"))


def _below(base: type[TiltyardError]) -> Iterator[type[TiltyardError]]:
    yield base
    for found in base.__subclasses__():
        yield from _below(found)


def written_codes() -> set[tuple[str, str]]:
    """(code, boundary) wherever an ``ErrorInfo`` is made of literals, or a dict that has both keys."""
    found = set()
    for text in sources("training", "webapp").values():
        if "ErrorInfo(" not in text and '"boundary":' not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ErrorInfo":
                found.add(_pair({word.arg or "": word.value for word in node.keywords}))
            elif isinstance(node, ast.Dict):
                entries = zip(node.keys, node.values, strict=True)
                found.add(_pair({str(key.value): value for key, value in entries if isinstance(key, ast.Constant)}))
    return {pair for pair in found if all(pair)}


def _pair(values: dict[str, ast.expr]) -> tuple[str, str]:
    code, where = values.get("code"), values.get("boundary")
    text = str(code.value) if isinstance(code, ast.Constant) else ""
    return text, where.attr.lower() if isinstance(where, ast.Attribute) else str(getattr(where, "value", ""))


def first_words(maker: str) -> set[str]:
    """First arguments of calls of this name that are words."""
    texts = sources("training", "webapp", "envs/base").values()
    return {word for text in texts for word in re.findall(rf'\b{maker}\(\s*"(\w+)"', text)}


# --- command lines ---------------------------------------------------------------------------------------------------
# Programs, and the words after which each asks for its arguments by another parser.
PROGRAMS = {
    "training.__main__": [["schema"], ["data", "docs"], ["import", "--docs"]],
    **{f"envs.{name}.__main__": [[], ["validate"]] for name in ("tools", "toolbench", "bfcl", "webshop")},
}
COMMANDS = (
    "up",
    "login_link",
    "backup",
    "restore",
    "database",
    "migrate",
    "import_run",
    "adopt_data_folder",
    "drain",
    "reencrypt_secrets",
    "publish_files",
    "retention",
    "demo",
    "program",
    "keep_environments",
    "run_clockwork",
    "prepare_site",
    "collect_messages",
    "compile_catalogues",
)
HEAD = """# The command lines

Made by `python -m tests.docs_code > docs/cli.md` from the programs themselves; a test fails where a flag is missing.
`python` is the one of the clone, `.venv/bin/python`. `make help` lists what `make` does; [operations.md](operations.md)
has backups, upgrades and the way back.

`python -m training run` ends with 0 succeeded, 1 failed, 2 wrong usage or config, 4 stopped, 5 paused.
"""


class _Asked(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def _parser_of(module: str, words: list[str]) -> argparse.ArgumentParser:
    """The parser that a program asks when it is started with these words."""

    def stop(self: argparse.ArgumentParser, *_args: Any, **_options: Any) -> None:
        raise _Asked(self)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            importlib.import_module(module).main(words)
        except _Asked as asked:
            return asked.parser
    raise AssertionError(f"{module} asked for no arguments after {words}")


def command_lines() -> str:
    """The page docs/cli.md."""
    from django.core.management import get_commands, load_command_class

    text = HEAD
    for module, starts in PROGRAMS.items():
        text += f"\n## `python -m {module.removesuffix('.__main__')}`\n"
        shown: set[str] = set()
        for parser in (_parser_of(module, words) for words in starts):
            text += "".join(
                _section(each) for each in _leaves(parser) if not (each.prog in shown or shown.add(each.prog))
            )
    text += "\n## `python manage.py`\n\nDjango's own commands work too (`migrate`, `createsuperuser`, `shell` …).\n"
    base = {action.dest for action in _plain_command().create_parser("x", "y")._actions}
    for name in COMMANDS:
        text += _section(load_command_class(get_commands()[name], name).create_parser("manage.py", name), base)
    return text


def _plain_command() -> Any:
    from django.core.management.base import BaseCommand

    return BaseCommand()


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for name, each in action.choices.items():
            about = next((choice.help for choice in action._choices_actions if choice.dest == name), "")
            each.description = each.description or about
            yield each


def _section(parser: argparse.ArgumentParser, base: set[str] = frozenset()) -> str:  # type: ignore[assignment]
    about = " ".join((parser.description or "").replace("``", "`").split())
    text = f"\n### `{parser.prog}`\n\n{about}\n" if about else f"\n### `{parser.prog}`\n"
    rows = [_row(action) for action in parser._actions if action.dest not in base | {"help"}]
    return text + ("\n| argument | default | what it does |\n|---|---|---|\n" + "".join(rows) if rows else "")


def _row(action: argparse.Action) -> str:
    name = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.dest}`"
    choices = f" ({', '.join(f'`{choice}`' for choice in action.choices)})" if action.choices else ""
    plain = isinstance(action.default, int | float | str) and action.default is not False and action.default != ""
    default = "required" if action.required else f"`{action.default}`" if plain else "–"
    about = (action.help or "").replace("|", "\\|").replace("<", "\\<").replace("%(default)s", str(action.default))
    return f"| {name} | {default} | {about}{choices} |\n"


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    django.setup()
    sys.stdout.write(command_lines())
