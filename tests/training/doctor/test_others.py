"""Other doctors' patients: the packages are installed by name, their simulated runs imported and looked at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.training.doctor.others import FAULTS, PACKAGES, counted, installed, looked_at, written
from training.doctor.rules import RULES

SEEDS, LENGTHS = 2, [60, 200, 400, 1000]


def test_every_fault_of_theirs_has_a_name_here_but_one() -> None:
    assert [name for name, codes in FAULTS.items() if not codes] == ["rlprobe/ref_drift_asymmetry"]
    assert set().union(*FAULTS.values()) <= set(RULES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_their_faults_are_found_and_their_healthy_runs_left_alone(tmp_path: Path) -> None:
    try:
        python = installed(tmp_path / "venv")
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed: {exc.stderr.decode(errors='replace')[-200:]}")
    runs = tmp_path / "runs"
    runs.mkdir()
    seen = list(looked_at(written(python, runs, SEEDS, LENGTHS)))
    assert {each.name for each in seen} == set(FAULTS) | {"rldoctor/healthy", "rlprobe/healthy"}
    found = counted(seen)
    assert (found["rldoctor_found"], found["rldoctor_runs"]) == (11 * SEEDS, 11 * SEEDS), found["missed"]
    assert (found["rlprobe_found"], found["rlprobe_runs"]) == (13 * SEEDS, 14 * SEEDS), found["missed"]
    assert found["healthy"] == 2 * SEEDS * len(LENGTHS) and len(found["false"]) <= 1, found["false"]
