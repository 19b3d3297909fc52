"""Both sides of the limits of frames, rows and settings, and what a session forgets."""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from envs.base import EnvironmentRefusal, ServerSettings, SettingsError, ToolEnvironment
from envs.base.bridge import Bridge, StepAction
from envs.base.frames import FrameError, check_frame
from envs.base.rows import add_carelessness, read_row
from envs.tools import application
from envs.tools.calculator import calculate
from envs.tools.server import TaskRow, ToolsEnvironment, normalise
from envs.tools.tasks import draw_task
from envs.wire import Observation, StepRequest
from tests.envs.client import run


def nested(depth: int) -> str:
    """A reset with a number in so many objects and lists."""
    inside = depth - 3  # the frame, its data and the task
    return f'{{"type": "reset", "data": {{"task": {{"x": {"[" * inside}1{"]" * inside}}}}}}}'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ('{"type": "open"}', "UNKNOWN_TYPE"),
        ('{"type": 1}', "UNKNOWN_TYPE"),
        ('{"type": "state", "data": []}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": "x"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"message": 1}}', "VALIDATION_ERROR"),
        (nested(49), "INVALID_JSON"),
    ],
)
def test_a_bad_frame_has_its_code(text: str | None, code: str) -> None:
    with pytest.raises(FrameError) as caught:
        check_frame(text)
    assert caught.value.code == code


def test_openenv_gets_only_the_fields_that_it_knows() -> None:
    plain = '{"type":"step",  "data":{"message":"a"}}'
    assert check_frame(plain) == ("step", plain), "as it came"
    assert json.loads(check_frame('{"type": "step", "data": {}, "new": 1}').text) == {"type": "step", "data": {}}
    for kind in ("state", "close"):
        assert json.loads(check_frame(f'{{"type": "{kind}", "data": {{}}}}').text) == {"type": kind}


def test_a_frame_may_be_48_deep_and_have_many_flat_lists() -> None:
    assert check_frame(nested(48)).kind == "reset"
    flat = json.dumps({"type": "reset", "data": {"task": {"x": [[]] * 100}}})
    assert check_frame(flat).text == flat


def test_the_first_fault_of_a_row_is_named() -> None:
    with pytest.raises(EnvironmentRefusal, match=r"cannot be played: conversation: .*valid list"):
        read_row(TaskRow, {"conversation": 1, "answer": 2})


def test_shares_and_copies_include_their_ends() -> None:
    parser = argparse.ArgumentParser()
    add_carelessness(parser)
    for copies, careless in (("1", "0"), ("1000", "1"), ("7", "0.5")):
        found = parser.parse_args(["--copies", copies, "--careless", careless])
        assert (found.copies, found.careless) == (int(copies), float(careless))
    assert (parser.parse_args([]).copies, parser.parse_args([]).careless) == (1, 0.0)
    for wrong in (["--copies", "0"], ["--copies", "1001"], ["--careless", "-0.1"], ["--careless", "1.1"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)


def test_the_least_settings_are_one_slot_and_no_delay() -> None:
    least = {"name": "test", "version": "1", "token": "x" * 16}
    assert ServerSettings(**least, slots=1, delay_ms=0).slots == 1
    for wrong in ({"slots": 0}, {"delay_ms": -1}, {"idle_s": 0.0}, {"token": "x" * 15}):
        with pytest.raises(SettingsError):
            ServerSettings(**least | wrong)


def test_the_calculator_takes_500_characters_and_100_digits() -> None:
    assert calculate("1" + "+1" * 249 + " ") == "250"
    assert calculate("10^100") == "1" + "0" * 100
    for wrong, why in (("1" + "+1" * 249 + "  ", "longer than 500"), ("10^101", "too large")):
        with pytest.raises(ValueError, match=why):
            calculate(wrong)


def test_thirty_marks_above_a_letter_are_kept() -> None:
    assert [len(normalise("x" + "\u0301" * marks)) for marks in (29, 30, 31, 100)] == [30, 31, 31, 31]


class Counting(ToolEnvironment):
    """Refuses a reset of seed 0."""

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        if seed == 0:
            raise EnvironmentRefusal("no")
        return Observation()

    def step(self, request: StepRequest) -> Observation:
        return Observation()


def test_each_episode_has_its_own_id_and_count() -> None:
    async def episodes() -> None:
        with ThreadPoolExecutor(1) as workers:
            bridge = Bridge(Counting, ServerSettings(name="test", version="1"), workers)
            await bridge.reset_async(task={}, seed=1, episode_id="mine")
            await bridge.step_async(StepAction(message=""))
            assert (bridge.state.episode_id, bridge.state.step_count) == ("mine", 1)
            await bridge.reset_async(task={}, seed=1)
            assert bridge.state.episode_id not in {"mine", ""} and bridge.state.step_count == 0
            with pytest.raises(EnvironmentRefusal, match="no"):
                await bridge.reset_async(task={}, seed=0)
            with pytest.raises(EnvironmentRefusal, match="send reset first"):
                await bridge.step_async(StepAction(message=""))

    run(episodes())


def test_tools_forget_an_episode_that_is_over() -> None:
    environment = ToolsEnvironment()
    environment.reset(draw_task(1, "en", "starter").row, 1, "e")
    assert environment.step(StepRequest(message="I do not know.")).done
    with pytest.raises(EnvironmentRefusal, match="send reset first"):
        environment.step(StepRequest(message="again"))


def test_a_validation_counts_its_episodes_and_names_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = len(list(application.bad_policies(draw_task(0, "en", "starter"), 0)))
    found = application.validate(2)
    assert (found["ok"], found["episodes"], found["bad_score_max"]) == (True, 2 * (3 + policies), 0.0)
    traces = iter(range(4))
    monkeypatch.setattr(application, "_trace", lambda *_given: next(traces))
    found = application.validate(2)
    assert (found["ok"], found["not_deterministic"]) == (False, [0, 1])
