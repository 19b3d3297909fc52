"""The shell completes names of the site, and never hears of an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Tool
from tests.processes import ROOT
from webapp.common.host import free_port
from webapp.people.teams.models import Project, User
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)


def completed(line: str, **env: str) -> list[str]:
    """What bash is given for the last word of a line."""
    words = line.split(" ")
    asked = {"_TILTYARD_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    argv = [sys.executable, "-c", "import sys; sys.argv = ['tiltyard']; from tiltyard_client.cli import main; main()"]
    here = {**os.environ, "PYTHONPATH": str(ROOT / "client"), **asked, **env}
    made = subprocess.run(argv, env=here, capture_output=True, text=True, timeout=60)
    assert made.stderr == "", made.stderr
    return made.stdout.split()


def test_names_are_completed(tool: Tool, make_run: Any, project: Project) -> None:
    for name in ("night-1", "night-2", "other"):
        make_run(name=name)
    RegisteredModel.objects.create(project=project, name="small", kind=ModelKind.STARTER)
    assert sorted(completed("tiltyard run show ni")) == ["night-1", "night-2"]
    assert sorted(completed("tiltyard run archive other ")) == ["night-1", "night-2", "other"]
    assert completed("tiltyard compare night-1 o") == ["other"]
    assert completed("tiltyard model show s") == ["small"]
    assert completed("tiltyard suite show ") == []
    assert "evaluate" in completed("tiltyard suite ")


@pytest.mark.parametrize("trouble", ["nobody", "away", "token", "project"])
def test_trouble_completes_nothing(home: Path, site: str, bob: User, project: Project, trouble: str) -> None:
    env = {"TILTYARD_URL": site, "TILTYARD_TOKEN": "tiltyard_x", "TILTYARD_PROJECT": "joust"}
    if trouble == "nobody":
        env = {}
    if trouble == "away":
        env["TILTYARD_URL"] = f"http://127.0.0.1:{free_port()}"
    if trouble == "project":
        env["TILTYARD_PROJECT"] = ""
    assert completed("tiltyard run show ", **env) == []
