"""A stand-in for the package ``wandb``: it writes what it receives into the file that WANDB_BASE_URL names.

WANDB_ENTITY says how it behaves: ``well``, ``hangs``, or ``refuses`` until the file ``<record>.up`` is there.
"""

import json
import os
import time
from pathlib import Path

RECORD = Path(os.environ["WANDB_BASE_URL"])
MODE = os.environ["WANDB_ENTITY"]


def _note(**fields):
    with RECORD.open("a") as file:
        file.write(json.dumps(fields) + "\n")


class Settings(dict):
    pass


class _Run:
    url = "http://tracker.example/run"
    summary = {}

    def log(self, values, step, commit):
        _refuse()
        _note(step=step, values=values)

    def finish(self, exit_code):
        _note(finished=exit_code)


def _refuse():
    if MODE == "refuses" and not Path(f"{RECORD}.up").exists():
        raise ConnectionError(f"no route to host, key {os.environ['WANDB_API_KEY']}\nsecond line")


def init(**options):
    print("a package that talks on standard output")
    _note(
        **{name: options[name] for name in ("id", "name", "project", "tags", "config", "resume")},
        env=sorted(os.environ),
    )
    while MODE == "hangs":
        time.sleep(1)
    _refuse()
    return _Run()
