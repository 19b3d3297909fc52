"""An advisory's life, the doctor's memory, and reading it all from journals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envs.wire import Message, ToolCall
from tests.training.doctor.planted import BEGIN, FAULTS, each, healthy, planted
from training.__main__ import main
from training.doctor.digest import StepFacts
from training.doctor.doctor import MAX_ADVISORIES, Doctor
from training.doctor.options import DoctorOptions
from training.doctor.reading import examine, success_in
from training.doctor.reference import reference
from training.journal import Journal, Metrics, RolloutFinished, RolloutStarted, StageStarted, TurnAdded

ROOT = Path(__file__).resolve().parents[3]


def test_an_advisory_is_over_after_ten_calm_steps_and_a_relapse_is_another_one() -> None:
    doctor, changes = Doctor(), []
    for facts in healthy(steps=90):
        bad = facts.step in range(30, 36) or facts.step in range(60, 66)
        changes += doctor.see(FAULTS["clip_share"](facts) if bad else facts)
    assert [(one.first, one.last, one.open) for one in doctor.advisories] == [(33, 36, False), (63, 66, False)]
    assert [one.first for one in changes] == [33] * 5 + [63] * 5  # each time that it spoke, and when it was over


def test_a_doctor_that_continues_in_another_process_says_the_same() -> None:
    steps = list(planted(FAULTS["excluded_bias"]))
    whole, first = Doctor(), Doctor()
    for facts in steps:
        whole.see(facts)
    for facts in steps[:33]:
        first.see(facts)
    text = json.dumps(first.as_json(), allow_nan=False)
    assert len(text) < 64 * 1024
    second = Doctor.from_json(json.loads(text))
    for facts in steps[33:]:
        second.see(facts)
    assert second.as_json() == whole.as_json() and "excluded_bias" in {one.code for one in whole.advisories}


def test_many_steps_take_the_room_of_sixty_four() -> None:
    doctor = Doctor(DoctorOptions(calm=1))
    sizes = {}
    for facts in healthy(steps=250):
        doctor.see(facts)
        sizes[facts.step] = len(json.dumps(doctor.history.as_json()))
    assert sizes[250] < 1.05 * sizes[100]
    assert MAX_ADVISORIES == 200


def test_a_step_that_does_not_end_is_a_stall() -> None:
    doctor = Doctor()
    assert doctor.wait(10_000) is None
    for facts in healthy(steps=20):
        doctor.see(facts)
    assert doctor.wait(70) is None  # 20 s are usual, and five times as many are a stall
    found = doctor.wait(130)
    assert found is not None and (found.code, found.first, found.open) == ("stall", 20, True)
    assert found.evidence.figures["now"] == "130"


def test_a_new_stage_is_compared_with_nothing_before_it() -> None:
    def other(facts: StepFacts) -> StepFacts:
        return replace(facts, metrics={**facts.metrics, "rollouts/task_success": 0.1}, stage=1 + (facts.step >= BEGIN))

    doctor = Doctor()
    for facts in healthy():
        doctor.see(other(facts))
    assert "collapse" not in {one.code for one in doctor.advisories}


@pytest.mark.parametrize(
    ("parts", "env_parts", "success"),
    [
        ({"task_success": 0.0}, {"task_success": 1.0}, 1.0),
        ({"coherence": 0.5, "helloagents_accuracy": 1.0}, {}, 1.0),
        ({"webshop_score": 0.4, "webshop_success": 0.0}, {}, 0.0),
        ({"task_success": None, "coherence": 0.5}, {}, None),
    ],
)
def test_which_figure_is_the_outcome(
    parts: dict[str, float | None], env_parts: dict[str, float], success: float | None
) -> None:
    assert success_in(parts, env_parts) == success


def call(text: str) -> Message:
    return Message(
        role="assistant", content="", tool_calls=[ToolCall(id="1", name="search", arguments={"query": text})]
    )


def write_run(folder: Path, *, first: int = 1, steps: int = 12, stage: int = 1) -> None:
    """Two groups of two a step: none solves anything, and one of each group makes one call four times."""
    journal = Journal(folder)
    if stage > 1:
        journal.write(StageStarted(stage=stage, of=2, name="b", began=first - 1, step=first - 1))
    for step in range(first, first + steps):
        for group in range(2):
            for index in range(2):
                name = f"s{step}-g{group}-i{index}"
                journal.write(RolloutStarted(rollout=name, step=step, group=group, index=index))
                journal.write(TurnAdded(rollout=name, turn=0, messages=[call("not the policy's")] * 9))
                messages = [call("the same" if index else f"{number}") for number in range(4)]
                journal.write(TurnAdded(rollout=name, turn=1, messages=messages))
                parts = {"coherence": 0.1 * index}
                journal.write(
                    RolloutFinished(
                        rollout=name,
                        status="completed",
                        reward=0.1 * index,
                        parts=parts,
                        env_parts={"task_success": 0.0},
                        turns=4,
                        calls=4,
                        failed_calls=1,
                    )
                )
        journal.write(RolloutStarted(rollout=f"held-{step}", step=step, group=9, index=0, held_out=True))
        held = RolloutFinished(rollout=f"held-{step}", status="completed", reward=9.0, env_parts={"task_success": 1.0})
        journal.write(held)
        journal.write(Metrics(step=step, values={"reward": 0.05, "reward_std": 0.05}))
        journal.write(Metrics(step=step, values={"heldout/success": 0.5}))
    journal.close()


def test_a_journal_is_read_step_by_step(tmp_path: Path) -> None:
    write_run(tmp_path)
    doctor = examine([tmp_path])
    newest = doctor.history.digests[-1]
    assert [each.step for each in doctor.history.digests] == list(range(1, 13))
    expected = {"rollouts": 4, "groups": 2, "phantom": 2, "looping": 2, "acting": 4, "calls": 16, "failed_calls": 4}
    assert {name: newest.figures[name] for name in expected} == expected
    assert newest.figures["heldout/success"] == 0.5 and newest.figures["success"] == 0.0
    found = {one.code: (one.first, one.open, one.evidence.rollouts) for one in doctor.advisories}
    assert found == {
        "phantom_share": (10, True, ["s12-g0-i0", "s12-g0-i1", "s11-g0-i0"]),
        "looping": (5, True, ["s12-g0-i1", "s12-g1-i1", "s11-g0-i1"]),
    }


def test_later_attempts_take_the_place_of_what_they_train_again(tmp_path: Path) -> None:
    write_run(tmp_path / "1", steps=6)
    write_run(tmp_path / "2", first=5, steps=4)
    write_run(tmp_path / "10", first=9, steps=3, stage=2)
    two = examine([tmp_path / "1", tmp_path / "2"]).history
    assert [each.step for each in two.digests] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert main(["doctor", str(tmp_path)]) == 1
    three = examine([tmp_path / "1", tmp_path / "2", tmp_path / "10"]).history
    assert (three.stage, [each.step for each in three.digests]) == (2, [9, 10, 11])


def test_the_command_lists_advisories_and_its_exit_code_says_whether_one_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    assert main(["doctor", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert output.startswith("Stuck. In 20 of 20 groups the rewards differ although all outcomes are the same.\n\n")
    assert "Phantom groups (phantom_share, since step 10)" in output
    assert "In 20 of 20 groups the rewards differ although all outcomes are the same." in output
    assert main(["doctor", str(tmp_path), "--json", "--set", "phantom_share=1", "--set", "loop_share=0.9"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["code"], found["evidence"]["curves"][0]["values"]) == ("phantom_share", [1.0] * 12)
    strict = ["--set", "loop_share=0.9", "--set", "window=10"]
    assert main(["doctor", str(tmp_path), *strict]) == 0
    early = "Too early to tell. 12 steps can be compared so far, and 20 are needed."
    assert capsys.readouterr().out == f"{early}\n\nNo advisory.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "window=1"], "window: "),
        (["--set", "windows=5"], "windows: "),
        (["--set", "phantom_share=much"], "phantom_share: "),
    ],
)
def test_a_threshold_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write_run(tmp_path, steps=1)
    assert main(["doctor", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_journal_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path} has no journal.jsonl. Name the folder of a run.\n"


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8") == reference()


def test_no_rollout_of_a_healthy_step_is_changed_by_planting() -> None:
    steps = list(planted(each(lambda one: replace(one, success=0.0))))[: BEGIN - 1]
    assert steps == list(healthy())[: BEGIN - 1]
