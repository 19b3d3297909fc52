"""A person who is logged in on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiltyard_client import cli
from typer.testing import CliRunner, Result

from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create

Tool = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's settings and present folder, English, on a wide terminal."""
    for name in ("TILTYARD_URL", "TILTYARD_TOKEN", "TILTYARD_PROJECT", "TILTYARD_ENDPOINT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TILTYARD_LANG", "en")
    monkeypatch.setattr("tiltyard_client.show.console._width", 200)
    monkeypatch.setattr("tiltyard_client.base.errors._width", 200)
    monkeypatch.setattr("tiltyard_client.api.LOOK_S", 0.1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def logged_in(url: str, user: User, role: str = "editor") -> Tool:
    """``tool("run", "list")``: the command of a person who is logged in at this site."""
    text = token_create(user=user, name="laptop", role=role)[1]
    result = CliRunner().invoke(cli.app, ["login", url, "--token", text])
    assert result.exit_code == 0, result.output
    return lambda *words, **options: CliRunner().invoke(cli.app, list(words), **options)


@pytest.fixture
def tool(home: Path, site: str, bob: User, project: Project) -> Tool:
    """That of bob, who edits."""
    return logged_in(site, bob)


def answered(result: Result, code: int = 0) -> Any:
    """What a command printed for programs."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def refused(result: Result, sentence: str, code: int = 1) -> None:
    """The command said why on the error output, printed nothing, and ended with this code."""
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert sentence in result.stderr and "Traceback" not in result.stderr, result.stderr
