"""The trainer and the agent loop by value: what would otherwise be seen in a whole run alone."""

from __future__ import annotations

import pytest

from tests.training.verl_backend.conftest import RunInVerl

pytestmark = pytest.mark.verl
FACTS = [
    "processes_that_are_lost",
    "devices_that_are_waited_for",
    "what_a_cluster_lacks",
    "names_and_places",
    "advantages_are_ours",
    "a_step_that_teaches_nothing",
    "several_updates",
    "rows_of_devices",
    "losses_by_value",
    "rows_that_lack_or_fail",
    "a_rollout_of_the_loop",
    "faults_of_other_processes",
]


def test_facts_of_the_trainer_and_the_loop(run_in_verl: RunInVerl) -> None:
    done = run_in_verl("-m", "tests.training.verl_backend.in_trainer")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    held = [line.removeprefix("HELD ") for line in done.stdout.splitlines() if line.startswith("HELD ")]
    assert held == FACTS
