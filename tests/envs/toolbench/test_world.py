from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from envs.toolbench import validate as proof
from envs.toolbench.__main__ import main
from envs.toolbench.bench import Bench
from envs.toolbench.demonstrations import generate_demonstrations
from envs.toolbench.server import numbers
from envs.toolbench.validate import validate
from envs.toolbench.world import APIS, KINDS, draw_task
from envs.wire import Message
from tests.envs.client import ROOT


def test_the_world_is_large_enough_to_train_on() -> None:
    names = [api.name for apis in APIS.values() for api in apis]
    assert len(set(names)) == len(names) == 32
    assert len({name.category for name in names}) == 8
    assert len({draw_task(index).query for index in range(1000)}) > 900


def test_ids_are_distinct_and_no_value_is_a_year() -> None:
    for kind in KINDS:
        assert len(kind.names) == 12 and len({kind.id_of(name) for name in kind.names}) == 12
        for measure in (kind.now, *kind.details, kind.yearly):
            assert measure.low >= 100 and (measure.high < 2000 or measure.low > 2100)


@pytest.mark.slow
def test_gold_is_right_and_bad_policies_score_nothing_on_a_thousand_seeds() -> None:
    summary = validate(1000)
    assert summary["ok"], summary
    assert (summary["gold_score_mean"], summary["bad_score_max"], summary["episodes"]) == (1.0, 0.0, 14_000)


def test_a_wrong_gold_answer_fails_the_proof(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "gold_steps", lambda task: [proof._finish("nothing"), proof._finish("nothing")])
    assert main(["validate", "--seeds", "3"]) == 1
    assert json.loads(capsys.readouterr().out)["gold_failures"] == ["0", "1", "2"]


def test_a_thousand_tasks_are_the_same_in_every_process() -> None:
    code = "from tests.envs.toolbench.test_world import digest; print(digest())"
    environment = {"PYTHONHASHSEED": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == digest()


def digest() -> str:
    return hashlib.sha256("".join(repr(draw_task(index)) for index in range(1000)).encode()).hexdigest()


def test_the_query_never_holds_the_answer() -> None:
    for index in range(1000):
        task = draw_task(index)
        asked = {gold.value for gold in task.gold if gold.asked}
        assert asked and asked <= numbers(task.answer) and not asked & numbers(task.query)
        assert {call.function for call in task.plan} <= task.by_function.keys()
        assert len(task.plan) < len(task.apis) <= 8


def test_half_of_two_answers_is_half_the_reward(world: Bench) -> None:
    import asyncio

    index = next(index for index in range(100) if sum(gold.asked for gold in draw_task(index).gold) == 2)
    task = draw_task(index)
    first = next(gold.value for gold in task.gold if gold.asked)
    steps = [*proof.gold_steps(task)[:-1], proof._finish(f"One of them is {int(first):,}.")]
    end = asyncio.run(proof.play(world, index, steps))[-1]
    assert end.reward == end.reward_parts["answer"] == 0.5
    assert (end.reward_parts["calls"], end.reward_parts["task_success"]) == (1.0, 0.0)


@pytest.mark.parametrize("speech", ["native", "text"])
def test_demonstrations_are_conversations_that_end_with_finish(speech: str) -> None:
    rows = list(generate_demonstrations(20, seed=3, speech=speech))  # type: ignore[arg-type]
    assert rows == list(generate_demonstrations(20, seed=3, speech=speech))  # type: ignore[arg-type]
    for row in rows:
        messages = [Message.model_validate(message) for message in row["conversation"]]
        assert [message.role for message in messages[:3]] == ["system", "user", "assistant"]
        last = messages[-1]
        assert "give_answer" in (
            last.content if speech == "text" else json.dumps(row["conversation"][-1]["tool_calls"])
        )
        assert all('"error": ""' in message.content for message in messages[3:-1:2])
