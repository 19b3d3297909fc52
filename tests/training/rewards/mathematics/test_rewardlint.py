"""Answers that others wrote to audit rewards with: `rewardlint`'s corpus, installed by name for this test."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.training.doctor.others import installed
from training.rewards.mathematics.equal import states

PACKAGE = "rewardlint==0.1.0"
CASES = 83
_PROGRAM = """
import json
from rewardlint.corpus import ALL_CASES
print(json.dumps([[c.id, c.reference, c.completion, c.expect] for c in ALL_CASES if "contested" not in c.tags]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_wrong_answer_is_accepted_and_no_right_one_refused(tmp_path: Path) -> None:
    try:
        python = installed(tmp_path / "venv", [PACKAGE])
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"{PACKAGE} cannot be installed: {exc.stderr.decode(errors='replace')[-200:]}")
    done = subprocess.run([str(python), "-c", _PROGRAM], check=True, capture_output=True, timeout=120)
    cases = json.loads(done.stdout)
    assert len(cases) == CASES
    wrong = [name for name, truth, text, right in cases if states(text, truth) is not right]
    assert wrong == []
