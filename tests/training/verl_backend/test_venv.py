"""What `make setup-verl` installs: what the lock says, without TRL, and `training/` as it is."""

from __future__ import annotations

import json
import re

import pytest

from tests.training.verl_backend.conftest import ROOT, RunInVerl

pytestmark = pytest.mark.verl
CODE = """
import importlib.util, json, training.rollout.players, training.rollout.step, training.rewards.scoring, training.journal
import verl
from importlib.metadata import version
names = ("verl", "torch", "transformers", "ray", "TransferQueue")
found = {name.lower(): version(name).partition("+")[0] for name in names}
print(json.dumps(found | {"trl": importlib.util.find_spec("trl") is not None}))
"""


def test_it_has_what_the_lock_names_and_no_trl(run_in_verl: RunInVerl) -> None:
    done = run_in_verl("-c", CODE)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    lock = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements/verl.lock").read_text(), re.MULTILINE))
    assert found.pop("trl") is False, "verl's start breaks where a TRL like ours can be imported"
    assert found == {name: lock[name] for name in found}
    assert "trl" not in lock
