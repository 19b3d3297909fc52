"""The verdict next to that of BFCL's own checker, on upstream's recorded episodes and on made ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from envs.bfcl.application import as_wire, gold_steps, play
from envs.bfcl.calls import Call
from envs.bfcl.package import entries
from envs.bfcl.server import BfclEnvironment
from envs.bfcl.tasks import Task, read_row, resolve
from envs.bfcl.turns import ERROR_TYPES, error_of
from envs.wire import Observation, StepRequest
from tests.envs.bfcl.test_goldens import goldens


def official(name: str, turns: list[list[list[Call]]], tag: str) -> str:
    """What ``bfcl-eval`` says of these calls: "" or its error type."""
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    task = resolve(read_row({"id": name}), 0)
    if len(turns) != len(task.turns):
        return "force_terminated"
    entry = {
        "id": name,
        "initial_config": {key: json.loads(text) for key, text in task.configs.items()},
        "involved_classes": list(task.classes),
    }
    decoded = [[[_text(call) for call in step] for step in steps] for steps in turns]
    truth = [[_text(call) for call in turn.truth] for turn in task.turns]
    found = multi_turn_checker(decoded, truth, entry, name.rsplit("_", 1)[0], f"model_{tag}")
    return "" if found["valid"] else str(found["error_type"]).removeprefix("multi_turn:")


def _text(call: Call) -> str:
    words = [repr(value) for value in call.positional] + [f"{key}={value!r}" for key, value in call.keywords.items()]
    return f"{call.name}({', '.join(words)})"


def replayed(golden: dict[str, Any]) -> tuple[Observation, list[list[list[Call]]], bool]:
    """The last answer of a golden episode, what its policy called, and whether a turn ran into its limit."""
    environment = BfclEnvironment()
    environment.reset({"id": golden["id"], "speech": "text", "compat": True}, 0, "golden")
    episode = environment._episode
    assert episode is not None
    for step in golden["steps"]:
        seen = environment.step(StepRequest(message=step["assistant"]))
    return seen, episode.asked[: episode.turn], episode.forced


@pytest.mark.parametrize("golden", goldens())
def test_golden_episodes_get_the_official_checkers_verdict(golden: dict[str, Any]) -> None:
    seen, turns, forced = replayed(golden)
    verdict = "force_terminated" if forced else official(golden["id"], turns, f"{golden['policy']}_{golden['id']}")
    assert seen.reward_parts["bfcl_valid"] == float(not verdict)
    assert [name for name in seen.reward_parts if name.startswith("bfcl_error/")] == (
        [f"bfcl_error/{verdict}"] if verdict else []
    )


def made(task: Task, rng: random.Random) -> list[list[list[Call]]]:
    """The gold calls with faults: left out, spoiled, said twice, or made where none is wanted."""
    turns: list[list[list[Call]]] = []
    earlier: list[Call] = []
    for turn in task.turns:
        calls = [call for call in turn.truth if rng.random() > 0.06]
        if calls and rng.random() < 0.1:
            calls[-1] = Call(calls[-1].name, {"nothing": 1})
        if not turn.truth and earlier and rng.random() < 0.5:
            calls = [rng.choice(earlier)]
        if calls and rng.random() < 0.2:
            calls.append(calls[0])
        rng.shuffle(calls) if rng.random() < 0.1 else None
        earlier += turn.truth
        turns.append([[call] for call in calls])
    return turns


def test_made_episodes_of_every_split_get_the_official_checkers_verdict() -> None:
    rng = random.Random(8)
    names = rng.sample(sorted(entries()), 120)
    found: dict[str, int] = {}
    for number, name in enumerate(names):
        task = resolve(read_row({"id": name}), 0)
        turns = made(task, rng)
        ours = error_of(task, turns, forced=False)
        assert ours == official(name, turns, f"made{number}"), name
        found[ours] = found.get(ours, 0) + 1
    assert min(found.get(kind, 0) for kind in ("", *ERROR_TYPES[1:])) >= 3, found


def test_gold_is_valid_and_a_turn_that_runs_into_its_limit_is_not() -> None:
    task = resolve(read_row({"id": "multi_turn_base_0"}), 0)
    assert play({"id": task.id}, gold_steps(task))[-1].reward_parts["bfcl_valid"] == 1.0
    again = [StepRequest(tool_calls=as_wire(task.turns[0].truth[:1]))] * 6
    ended = play({"id": task.id}, _then_gives_up(again))[-1].reward_parts
    assert (ended["bfcl_valid"], ended["bfcl_error/force_terminated"]) == (0.0, 1.0)


def _then_gives_up(steps: Iterable[StepRequest]) -> Iterable[StepRequest]:
    yield from steps
    yield StepRequest()
