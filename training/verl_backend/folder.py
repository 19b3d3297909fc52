"""The job folder that the processes of a verl job share: what each needs to know, under one path on every host."""

from __future__ import annotations

import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from training.config import JobConfig, config_load, config_to_yaml

FOLDER_NAME, ACTORS_NAME, ADAPTER_NAME, STOP_NAME, BEATS_NAME = "verl", "actors", "adapter", "stop", "beats"
SETTINGS_NAME, LOOPS_NAME, TOKENIZER_NAME, SAVED_NAME = "settings.yaml", "loops.yaml", "tokenizer", "saved"
_CONFIG_NAME, _PLAN_NAME, _VARIABLES_NAME = "config.yaml", "plan.json", "variables.json"


class Plan(BaseModel):
    """What an attempt plays: ``order`` has the row of each group of the whole run, sampling after sampling.

    ``rows`` counts the rows that there are to play; ``held_out`` are the places of held-out tasks, in their own dataset
    where the job names one. ``eos_id`` ends a turn of the model. ``earlier`` are the folders of the attempts before
    this one, oldest first, ``checkpoint`` is the one that it continues from. ``base`` is the folder of the model that
    it began with, ``resolved`` what ``Job`` knows of it.
    """

    attempt: int
    order: list[int]
    rows: int
    eos_id: int
    held_out: list[int] = []
    earlier: tuple[Path, ...] = ()
    checkpoint: Path | None = None
    base: Path | None = None
    resolved: dict[str, str] = {}

    def rows_of(self, sampling: int, prompts: int) -> list[int]:
        """The rows of the groups of a sampling, from 1, of ``prompts`` groups."""
        return self.order[(sampling - 1) * prompts : sampling * prompts]


class JobFolder:
    """``<run>/verl``, and the places of the run next to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_dir = path.parent

    def write(self, config: JobConfig, plan: Plan) -> None:
        """Keep the config, with its references resolved, where any run has it, and the plan."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / STOP_NAME).unlink(missing_ok=True)
        shutil.rmtree(self.path / BEATS_NAME, ignore_errors=True)
        (self.run_dir / _CONFIG_NAME).write_text(config_to_yaml(config), encoding="utf-8")
        (self.path / _PLAN_NAME).write_text(plan.model_dump_json(), encoding="utf-8")

    @property
    def config(self) -> JobConfig:
        """The job's config. Raises ``ConfigError``."""
        return config_load(self.run_dir / _CONFIG_NAME)

    @property
    def plan(self) -> Plan:
        """The job's tasks."""
        return Plan.model_validate_json((self.path / _PLAN_NAME).read_text(encoding="utf-8"))

    @property
    def adapter(self) -> Path:
        """The adapter that the job begins with, where it has one."""
        return self.path / ADAPTER_NAME

    @property
    def own_journal(self) -> Path:
        """The folder for the journal of this process: no other one writes there."""
        return self.run_dir / ACTORS_NAME / f"{socket.gethostname()}-{os.getpid()}"

    def keep_variables(self, variables: dict[str, str]) -> None:
        """Keep variables for the processes of the job on other machines, out of sight of others."""
        path = self.path / _VARIABLES_NAME
        path.touch(mode=0o600)
        path.write_text(json.dumps(variables), encoding="utf-8")

    def take_variables(self) -> None:
        """Set what was kept, in a process of the job."""
        with suppress(FileNotFoundError):
            os.environ.update(json.loads((self.path / _VARIABLES_NAME).read_text(encoding="utf-8")))

    def forget_variables(self) -> None:
        """The job is over."""
        (self.path / _VARIABLES_NAME).unlink(missing_ok=True)

    @property
    def asked_to_stop(self) -> bool:
        """Whether the job was asked to end."""
        return (self.path / STOP_NAME).exists()

    def ask_to_stop(self) -> None:
        """Ask the job to save and end after its step; from any host."""
        (self.path / STOP_NAME).touch()
