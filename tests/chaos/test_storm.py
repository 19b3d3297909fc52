"""Ten random faults over real runs of ``manage.py up``; ``benchmarks/chaos.py`` does the same with a hundred."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.chaos.house import ROOT

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1800)]
FAULTS, SAVE_INTERVAL_S = 10, 600


def test_every_run_under_random_faults_ends_well() -> None:
    argv = [sys.executable, "benchmarks/chaos.py", "--faults", str(FAULTS), "--seed", "4", "--steps", "10"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1700)
    assert done.stdout, done.stderr[-3000:]
    figures = json.loads(done.stdout)["chaos"]
    print(done.stderr[-4000:], figures)
    assert figures["faults"] == FAULTS and figures["runs"] > 0
    assert figures["succeeded"] == figures["runs"], figures["not_succeeded"]
    assert figures["database_is_journal"], figures["differences"]
    assert figures["most_seconds_lost"] <= SAVE_INTERVAL_S
    assert set(figures["pages"]) <= {"200", "503"}, figures["pages"]
