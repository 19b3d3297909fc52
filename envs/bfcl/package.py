"""The content of the installed ``bfcl-eval``: the classes, the documents of their functions, questions and answers.

Two releases matter: 2025.6.8 is BFCL v3 and 2026.3.23 is v4. Their data and classes differ in a quarter of the entries,
so both always come from the one that is installed, and rows made for the other one are refused (``envs.bfcl.tasks``).
Only its eight class modules are imported: they need ``mpmath`` and nothing else of its dependencies.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

Version = Literal["v3", "v4"]
VERSIONS: tuple[Version, ...] = ("v3", "v4")
SPLITS = ("base", "miss_func", "miss_param", "long_context")
PACKAGE = "bfcl_eval"
SOURCES = f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
STATELESS = frozenset({"MathAPI"})


class PackageMissing(RuntimeError):
    """``bfcl-eval`` is not installed, or is a release without multi-turn data; the text says what to install."""


@cache
def data_folder() -> Path:
    """The package's data, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise PackageMissing("bfcl-eval is not installed: pip install --no-deps bfcl-eval==2025.6.8 and mpmath.")
    return Path(spec.origin).parent / "data"


@cache
def installed_version() -> Version:
    """The version of the installed release's data, from its file names."""
    for version in VERSIONS:
        if (data_folder() / f"BFCL_{version}_multi_turn_base.json").is_file():
            return version
    raise PackageMissing("The installed bfcl-eval has no multi-turn data of v3 or v4: install 2025.6.8 (v3).")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


@cache
def entries() -> dict[str, dict[str, Any]]:
    """All entries by id, in the order of the files, with their ``ground_truth`` and ``split``. Do not change them."""
    found: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        name = f"BFCL_{installed_version()}_multi_turn_{split}.json"
        answers = {row["id"]: row["ground_truth"] for row in _lines(data_folder() / "possible_answer" / name)}
        for row in _lines(data_folder() / name):
            found[row["id"]] = {**row, "ground_truth": answers[row["id"]], "split": split}
    return found


@cache
def documents(class_name: str) -> dict[str, dict[str, Any]]:
    """The documents of one class's functions by name, in BFCL's own form. Do not change them."""
    path = data_folder() / "multi_turn_func_doc" / f"{MODULES[class_name]}.json"
    return {row["name"]: row for row in _lines(path)}


@cache
def class_of(name: str) -> type[Any]:
    """One of BFCL's classes."""
    kind = getattr(importlib.import_module(f"{SOURCES}.{MODULES[name]}"), name)
    assert isinstance(kind, type)  # noqa: S101 - for mypy: the package has no types
    return kind


@cache
def methods_of(name: str) -> frozenset[str]:
    """The methods that may be called: public ones that the class defines itself and that are documented."""
    own = vars(class_of(name))
    return frozenset(method for method in documents(name) if callable(own.get(method)) and method[:1] != "_")


@cache
def mutable_defaults(class_name: str, method: str) -> dict[str, tuple[int, Any]]:
    """Parameters whose default is a list or an object: their position without ``self``, and the default.

    Python keeps one such default for all calls, and ``post_tweet`` stores it in the state: a mention that one session
    adds would appear in the tweets of all others.
    """
    parameters = list(inspect.signature(getattr(class_of(class_name), method)).parameters.values())[1:]
    return {
        parameter.name: (position, parameter.default)
        for position, parameter in enumerate(parameters)
        if isinstance(parameter.default, dict | list | set)
    }


def load_instance(name: str, config: str, *, long_context: bool) -> Any:
    """A fresh instance with the scenario of ``config`` (JSON). Raises what BFCL's class does on a bad scenario."""
    instance = class_of(name)()
    if name in STATELESS:
        return instance
    instance._load_scenario(json.loads(config), long_context=long_context)
    if long_context:
        _unshare(instance)
    return instance


def _unshare(instance: Any) -> None:
    """Long scenarios put cards and bookings of module constants into the state: paying would change every session."""
    for key, value in vars(instance).items():
        if isinstance(value, dict | list | set):
            setattr(instance, key, copy.deepcopy(value))
