"""Options of built-in servers: what is declared, what is accepted, and what reaches a command line."""

from __future__ import annotations

import argparse
import importlib
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser

from tests.processes import ROOT
from webapp.environments import launchers, services
from webapp.environments.builtin import (
    COMMAND_TEXTS,
    OPTION_TEXTS,
    Option,
    arguments_argv,
    arguments_clean,
    builtin_of_image,
    builtins,
    place_find,
    places_offered,
)
from webapp.environments.launchers import LaunchError, ProcessLauncher, option_words
from webapp.environments.models import Environment, Kind
from webapp.environments.tokens import token_of
from webapp.people.teams.models import Project, User

LIMITS = {"slots": 8, "cpus": 1.0, "memory_mb": 768, "pids": 128}
START_LIMIT_S = 40.0


@pytest.fixture
def launch(project: Project, bob: User) -> Callable[..., Environment]:
    def make(**over: Any) -> Environment:
        fields = {"name": "mine", "kind": Kind.PROCESS, "program": "webshop", **LIMITS}
        return services.environment_launch(project=project, user=bob, **(fields | over))

    return make


# --- What is declared -------------------------------------------------------------------------------------------------
def test_every_option_is_one_of_its_program_and_has_its_text() -> None:
    named = {(program.name, option.name) for program in builtins().values() for option in _all_options(program)}
    assert {name for name in named if name not in OPTION_TEXTS and ("", name[1]) not in OPTION_TEXTS} == set()
    assert {key for key in OPTION_TEXTS if key[0] and key not in named} == set()
    assert {name for program in builtins().values() for name in program.datasets} == set(COMMAND_TEXTS)


def _all_options(program: Any) -> list[Any]:
    return [*program.options, *(option for command in program.datasets.values() for option in command.options)]


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser, list[Option]]]:
    """Each program's own parsers, as its command line has them, with what the manifest says of them."""
    for program in builtins().values():
        module = importlib.import_module(f"envs.{program.name}.__main__")
        commands: dict[str, argparse.ArgumentParser] = {}
        for name in ("_parser", "_command_parser"):
            if hasattr(module, name):
                (action,) = [
                    one
                    for one in getattr(module, name)()._actions
                    if hasattr(one, "choices") and isinstance(one.choices, dict)
                ]
                commands |= action.choices
        server = module._server_parser() if hasattr(module, "_server_parser") else commands.get("serve")
        if program.options:
            assert server is not None
            yield program.name, server, program.options
        for name, command in program.datasets.items():
            yield f"{program.name} {name}", commands[name], [*command.options, *command.shared]


def test_manifests_say_what_the_programs_take() -> None:
    """A default that is not the program's would be lost, because defaults are left out of command lines."""
    seen = 0
    for where, parser, options in _parsers():
        actions = {string: action for action in parser._actions for string in action.option_strings}
        for option in options:
            action, seen = actions[f"--{option.name}"], seen + 1
            expected = {"flag": False, "file": [] if action.default == [] else None}.get(option.kind, option.default)
            if option.name == "split" and where in ("bfcl tasks", "bfcl demonstrations"):
                assert (action.default, ("all", *(action.choices or ()))) == (None, option.choices)
                continue
            assert action.default == expected, (where, option.name)
            assert tuple(action.choices or ()) == option.choices, (where, option.name)
            for value in (option.minimum, option.maximum):
                if value is not None:
                    assert callable(action.type) and action.type(str(value)) == value
    assert seen > 30


def test_openenv_reads_the_manifests_with_our_keys() -> None:
    for name in ("tools", "bfcl", "webshop", "toolbench"):
        assert OpenEnvYamlParser().parse(ROOT / "envs" / name).name == name


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("tiltyard-env-bfcl", "bfcl"),
        ("hub.example:5000/team/tiltyard-env-webshop:1.2", "webshop"),
        ("tiltyard-env-tools@sha256:abc", "tools"),
        ("tiltyard-env-mine", None),
        ("bfcl", None),
    ],
)
def test_our_images_are_known_by_their_name(image: str, program: str | None) -> None:
    found = builtin_of_image(image)
    assert (found.name if found else None) == program


# --- What is accepted -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("program", "given", "words"),
    [
        ("bfcl", {"speech": "text", "errors": "standard", "compat": True}, ["--speech", "text", "--compat"]),
        ("bfcl", {"compat": False}, []),
        (
            "webshop",
            {"products": 60, "catalogue-seed": 3, "reward": "fixed"},
            ["--products", "60", "--catalogue-seed", "3", "--reward", "fixed"],
        ),
        ("webshop", {"products": 1000, "data": ""}, []),
        ("webshop", {"products": 1}, ["--products", "1"]),
        ("webshop", {"products": 2_000_000}, ["--products", "2000000"]),
        ("webshop", {"data": "webshop", "goals": "human"}, ["--data", "{root}/webshop", "--goals", "human"]),
        ("webshop", {"data": "--host"}, ["--data", "{root}/--host"]),
        ("webshop", {"data": "same"}, ["--data", "{root}/webshop"]),
        (
            "toolbench",
            {"queries": "queries.json", "query-ids": "toolbench/tools/deep.json", "max-turns": 3},
            ["--queries", "{root}/queries.json", "--query-ids", "{root}/toolbench/tools/deep.json", "--max-turns", "3"],
        ),
    ],
)
def test_words_of_a_command_line(program: str, given: dict[str, Any], words: list[str], data: Path) -> None:
    options = builtins()[program].options
    chosen = arguments_clean(options, given)
    assert arguments_argv(options, chosen) == [word.format(root=data.resolve()) for word in words]


@pytest.mark.parametrize(
    ("program", "given", "sentence"),
    [
        ("tools", {"speech": "text"}, "There is no such option."),
        ("bfcl", {"host": "0.0.0.0"}, "There is no such option."),
        ("bfcl", {"speech": "--insecure"}, "Choose one of: native, text."),
        ("bfcl", {"speech": ["text"]}, "Choose one of: native, text."),
        ("bfcl", {"compat": "on"}, "Choose yes or no."),
        ("webshop", {"products": 0}, "Between 1 and 2000000."),
        ("webshop", {"products": 2_000_001}, "Between 1 and 2000000."),
        ("webshop", {"products": "60"}, "Write a whole number."),
        ("webshop", {"products": True}, "Write a whole number."),
        ("webshop", {"products": float("nan")}, "Write a whole number."),
        ("toolbench", {"query-ids": "queries.json"}, "This needs “queries” too."),
    ],
)
def test_what_no_option_can_be(program: str, given: dict[str, Any], sentence: str, data: Path) -> None:
    with pytest.raises(ValidationError) as caught:
        arguments_clean(builtins()[program].options, given, prefix="arguments.")
    assert caught.value.message_dict == {f"arguments.{next(iter(given))}": [sentence]}


@pytest.mark.parametrize(
    ("limits", "good", "bad"),
    [({}, [-(10**9), 10**9], []), ({"minimum": 2}, [2, 10**9], [1]), ({"maximum": 2}, [-(10**9), 2], [3])],
)
def test_a_number_may_have_no_limit(limits: dict[str, int], good: list[int], bad: list[int]) -> None:
    options = [Option(name="n", kind="integer", **limits)]  # type: ignore[arg-type]
    assert [arguments_clean(options, {"n": number}) for number in good] == [{"n": number} for number in good]
    for number in bad:
        with pytest.raises(ValidationError, match="Between"):
            arguments_clean(options, {"n": number})


OUTSIDE = [
    "..",
    "../outside",
    "webshop/../../outside",
    "webshop/..",
    "/etc",
    "//etc",
    "way-out",
    "way-out/secret.json",
    "webshop\0",
    "webshop/\0",
    ".hidden",
    "./webshop",
    "webshop/",
    "~",
    "no-such",
    "queries.json",
    "",
    "toolbench/cache/Weather",
    "web\nshop",
    "x" * 501,
    None,
    7,
    ["webshop"],
]


@pytest.mark.parametrize("place", OUTSIDE)
def test_no_folder_but_those_of_the_data_folder(place: Any, data: Path) -> None:
    with pytest.raises(ValueError, match="not in the data folder"):
        place_find("folder", place)


def test_no_file_but_those_of_the_data_folder(data: Path) -> None:
    for place in ("leak.json", "way-out/secret.json", "../outside/secret.json", "webshop", "/etc/passwd"):
        with pytest.raises(ValueError, match="not in the data folder"):
            place_find("file", place)
    assert place_find("file", "toolbench/tools/deep.json").read_text() == "[]"


def test_what_is_offered_is_what_is_accepted(data: Path, settings: Any) -> None:
    folders = ["--host", "same", "toolbench", "toolbench/cache", "toolbench/tools", "webshop"]
    assert places_offered("folder") == folders
    assert places_offered("file") == ["queries.json", "toolbench/tools/deep.json"]
    settings.ENVIRONMENT_DATA_DIR = data / "nothing-here"
    assert places_offered("folder") == []


# --- Launching --------------------------------------------------------------------------------------------------------
def test_arguments_are_kept_without_defaults(launch: Callable[..., Environment], data: Path) -> None:
    made = launch(arguments={"products": 60, "goals": "synthetic", "data": "webshop"})
    assert Environment.objects.filter(pk=made.pk)[0].arguments == {"products": 60, "data": "webshop"}
    with pytest.raises(ValidationError) as caught:
        launch(name="other", arguments={"data": "../outside"})
    assert caught.value.message_dict == {"arguments.data": ["This is not in the data folder."]}
    assert Environment.objects.count() == 1


def test_an_image_of_others_takes_no_options(launch: Callable[..., Environment], settings: Any) -> None:
    settings.ENVIRONMENT_IMAGES = ["*"]
    with pytest.raises(ValidationError) as caught:
        launch(kind=Kind.DOCKER, program="", image="shop", arguments={"products": 60})
    assert caught.value.message_dict == {"arguments.products": ["There is no such option."]}


def test_data_that_went_away_is_a_sentence_not_a_start(launch: Callable[..., Environment], data: Path) -> None:
    made = launch(arguments={"data": "webshop"})
    (data / "webshop").rmdir()
    with pytest.raises(LaunchError) as caught:
        ProcessLauncher().start(made.replicas.create(number=1))
    assert "data: This is not in the data folder." in caught.value.message and caught.value.hint
    (data / "webshop").symlink_to(data.parent / "outside")  # swapped after it was chosen
    with pytest.raises(LaunchError):
        option_words(made)


def test_a_container_sees_its_data_read_only(launch: Callable[..., Environment], data: Path) -> None:
    made = launch(
        kind=Kind.DOCKER,
        program="",
        image="tiltyard-env-toolbench:2",
        arguments={"tools": "toolbench/tools", "queries": "queries.json", "speech": "text"},
    )
    found = launchers._server_arguments(made)
    assert found["command"][6:] == [
        "--tools",
        "/run/tiltyard/tools",
        "--queries",
        "/run/tiltyard/queries",
        "--speech",
        "text",
    ]
    assert [(one["Target"], one["Source"], one["Type"], one["ReadOnly"]) for one in found["mounts"]] == [
        ("/run/tiltyard/tools", str(data.resolve() / "toolbench/tools"), "bind", True),
        ("/run/tiltyard/queries", str(data.resolve() / "queries.json"), "bind", True),
    ]
    assert [how["mode"] for how in found["volumes"].values()] == ["ro"]


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessLauncher]:
    made = ProcessLauncher()
    yield made
    for one in made.list_owned():
        made.stop(one.handle, force=True)


def test_a_server_really_runs_with_its_options(launcher: ProcessLauncher, launch: Callable[..., Environment]) -> None:
    made = launch(arguments={"products": 60})
    replica = made.replicas.create(number=1)
    started = launcher.start(replica)
    assert _health(started.url, made)["slots"] == 8
    assert any(
        "shop.open" in line and "products=60" in line.replace('"', "").replace(": ", "=")
        for line in launcher.logs(replica)
    )


def _health(url: str, environment: Environment) -> Any:
    import json

    request = urllib.request.Request(f"{url}/health", headers={"Authorization": f"Bearer {token_of(environment.pk)}"})
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
