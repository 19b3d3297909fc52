"""Seven of the nine programs of `up` had the operator's whole environment."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.processes import ROOT
from webapp.common.host import Service
from webapp.ops.console import Console, UpOptions
from webapp.ops.programs import (
    Program,
    celery_programs,
    clock_program,
    keeper_names,
    keeper_program,
    service_program,
    single_programs,
    tools_program,
    train_names,
    web_program,
)
from webapp.ops.up import Up

# What the operator's shell has, and which programs may have it.
SITE = {"web", "keeper", "clock", "worker-short", "worker-long", "worker-endpoint", "worker-train"}
WORK = SITE - {"keeper", "clock"}
RUNNERS = {"worker-train", "worker-endpoint"}
CANARIES = {
    "AWS_SECRET_ACCESS_KEY": set(),
    "OTHER_SECRET": set(),
    "TILTYARD_UNKNOWN": set(),
    "PGPASSWORD": set(),
    "JUDGE_KEYS": set(),
    "DATABASE_URL": SITE,
    "TILTYARD_SECRET_KEY_FILE": SITE,
    "EMAIL_HOST_PASSWORD": SITE,
    "TILTYARD_HUB_TOKEN": SITE,
    "TILTYARD_FILES_SECRET": SITE,
    "SSL_CERT_FILE": SITE,
    "DOCKER_HOST": {"keeper"},
    "JUDGE_KEY": WORK,
    "JUDGE_KEY_OURS": WORK,
    "JUDGE_KEY_OURS_HOST": WORK,
    "HF_HOME": WORK,
    "TILTYARD_REWARD_MODELS": WORK,
    "OMP_NUM_THREADS": WORK,
    "HF_TOKEN": RUNNERS,
    "HTTPS_PROXY": RUNNERS,
    "WANDB_API_KEY": RUNNERS,
    "MLFLOW_TRACKING_PASSWORD": RUNNERS,
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """All that `up` starts, where the operator's shell has the canaries."""
    for name in CANARIES:
        monkeypatch.setenv(name, f"canary of {name}")
    services = [Service(name, ["serve"], "url", tmp_path) for name in ("postgres", "redis")]
    return [
        *map(service_program, services),
        tools_program(8101, tmp_path / "token"),
        web_program("127.0.0.1", 8000, behind_proxy=False),
        keeper_program(tmp_path),
        clock_program(tmp_path),
        *celery_programs(tmp_path, []),
    ]


def _known(program: Program, given: dict[str, str]) -> dict[str, str]:
    """What a program finds in its environment where supervisord has ``given``, and hands it on."""
    shown = dataclasses.replace(program, argv=["/usr/bin/env", "-0"])
    found = subprocess.check_output(shown.command(given), env={**given, **program.env}, text=True)
    return dict(line.split("=", 1) for line in found.split("\0") if line)


def test_each_program_has_its_own_variables_and_no_others(tmp_path: Path, programs: list[Program]) -> None:
    up = Up(UpOptions(tmp_path, ROOT), Console())
    given = up._base_environment(*(program.names for program in programs))
    assert {program.name for program in programs} == {"postgres", "redis", "tools", *SITE}
    known = {program.name: _known(program, given) for program in programs}
    found = {name: {program for program, has in known.items() if name in has} for name in CANARIES}
    assert found == CANARIES
    assert {name for name in CANARIES if name in given} == {name for name, who in CANARIES.items() if who}
    assert all(has["PATH"] == os.environ["PATH"] for has in known.values())
    assert set(known["postgres"]) == set(known["redis"]) <= {*given, "PATH"} and "TILTYARD_PORT" not in known["redis"]
    assert known["web"]["TILTYARD_DATA_DIR"] == str(tmp_path) and known["web"]["TILTYARD_STATIC_FINDERS"] == "false"
    assert "TILTYARD_READY_FILE" in known["worker-train"]


def test_no_value_is_on_a_command_line(programs: list[Program]) -> None:
    given = dict(os.environ)
    assert not [program.name for program in programs if "canary of" in " ".join(program.command(given))]


def test_a_program_in_a_container_has_the_same_ones(programs: list[Program]) -> None:
    named = {program.name: set(program.environment()) for program in single_programs().values()}
    found = {name: {program for program, has in named.items() if name in has} for name in CANARIES}
    assert found == CANARIES


def test_what_nothing_is_taken_from_starts_as_it_is() -> None:
    program = Program("x", "app", ["/bin/echo"], names=("A",), env={"B": "1"})
    assert program.command(["PATH", "A", "B"]) == ["/bin/echo"]
    assert program.command(["PATH", "A", "B", "C"])[1:] == ["-u", "C", "/bin/echo"]


def test_every_documented_variable_reaches_those_that_read_it() -> None:
    """A variable that is read and not named would be without effect under `up`."""
    table = (ROOT / "docs" / "settings.md").read_text().split("## Set by Tiltyard itself")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)} - {"JUDGE_KEY", "JUDGE_KEY_HOST"}
    assert len(documented) > 40 and documented - {*train_names(), *keeper_names()} == set()
