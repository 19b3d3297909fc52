"""Every shared case of an endpoint's reply and of an import of a run, by value."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.training.imports.test_readers import of, read
from tests.training.imports.test_recorded import sizes, turns
from tests.training.imports.test_trainers import figures
from training.chat_reply import Reply
from training.data.files.sources import Given
from training.dialects import json_calls
from training.imports.read import import_files
from training.rollout.endpoint import message_of, turn_of

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
USED = {"prompt_tokens": 5, "completion_tokens": 2}


def imported(tmp_path: Path, name: str) -> tuple[Any, list[Any]]:
    return read(tmp_path, (name, (CASES / name).read_bytes()))


def test_an_evaluation_before_the_first_step(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "i1_wandb_eval_row_first.jsonl")
    assert {step: row.get("reward") for step, row in figures(events).items()} == {0: None, 10: 0.2, 20: 0.4}
    assert figures(events)[0]["eval/reward"] == 0.1 and "train/global_step" in report.files[0].notes[0]


def test_the_log_of_llama_factory(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "j1_llamafactory_trainer_log.jsonl")
    assert (report.verdict, report.tool, report.steps) == ("ok", "LLaMA-Factory", 3)
    assert {step: row["loss"] for step, row in figures(events).items()} == {1: 1.0, 2: 0.5, 3: 1 / 3}
    assert {step: row["learning_rate"] for step, row in figures(events).items()} == {1: 1e-6, 2: 2e-6, 3: 3e-6}


def test_the_log_of_ms_swift(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "j2_swift_logging.jsonl")
    assert (report.verdict, report.tool, report.bad_rows) == ("ok", "ms-swift", 0)
    assert {step: row["loss"] for step, row in figures(events).items()} == {1: 1.0, 2: 0.5, 3: 1 / 3}


def test_a_chart_of_two_runs(tmp_path: Path) -> None:
    report, _events = imported(tmp_path, "j5_wandb_two_runs.csv")
    assert report.verdict == "rejected" and "2 runs: run-a, run-b." in report.message
    for run, reward in (("run-a", 0.2), ("run-b", 0.4)):
        (tmp_path / run).mkdir()
        import_files([Given(CASES / "j5_wandb_two_runs.csv", "chart.csv")], tmp_path / run, run=run)
        assert f'"reward":{reward}' in (tmp_path / run / "journal.jsonl").read_text()


def test_figures_that_are_not_finite(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "k1_trainer_state_nan.json")
    found = figures(events)
    assert math.isnan(found[10]["grad_norm"]) and math.isnan(found[20]["loss"]) and found[20]["kl"] == math.inf
    assert (found[10]["loss"], found[20]["reward"]) == (0.5, 0.3)
    assert report.files[0].notes[0].startswith("3 figures are not finite (NaN or infinite), the first at step 10")


def test_a_prompt_twice_in_a_step(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "l1_verl_same_prompt_twice_12.jsonl")
    assert sizes(events) == [4, 4, 4] and {event.expected for event in of(events, "rollout_started")} == {"4", "6"}
    means = {(event.step, event.group): event.reward_mean for event in of(events, "group_scored")}
    assert means == {(12, 0): 0.5, (12, 1): 0.0, (12, 2): 0.25} and not report.files[0].left_out


@pytest.mark.parametrize(
    ("name", "error", "reasoning"),
    [
        ("m1_reply_half_surrogate", "it contains half of a surrogate pair", None),
        ("m2_reply_reasoning_only", None, "All my words are thoughts."),
        ("m4_reply_nan", "NaN is not JSON", None),
    ],
)
def test_the_reply_of_an_endpoint(name: str, error: str | None, reasoning: str | None) -> None:
    reply = Reply(json.loads((CASES / f"{name}.json").read_text()), "stop", USED)
    turn = turn_of(reply, json_calls.parse_hermes, "call_")
    assert not turn.tool_calls and (error in (turn.parse_error or "") if error else turn.parse_error is None)
    assert message_of(turn, reply).reasoning == reasoning


def test_decimal_commas(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "r4_pairs_windowed.csv")
    assert figures(events) == {1: {"reward": 0.25, "loss": 1.5}, 2: {"reward": 0.35, "loss": 1.4}}
    assert report.files[0].notes == ["Its numbers have decimal commas: 0,25 was read as 0.25."]


def test_rollouts_of_nemo_gym(tmp_path: Path) -> None:
    report, events = imported(tmp_path, "s1_nemo_rollouts.jsonl")
    assert (report.verdict, report.tool, sizes(events)) == ("ok", "NeMo Gym", [2])
    assert [end.reward for end in of(events, "rollout_finished")] == [0.0, 1.0]
    assert turns(events, "1/0/1") == [
        [("user", "Lamps?")],
        [("assistant", "")],
        [("tool", "4")],
        [("assistant", "Four.")],
    ]
    assert of(events, "turn")[1].messages[0].tool_calls[0].arguments == {"item": "lamp"}
