from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from envs.tools.application import validate
from envs.tools.demonstrations import demonstration, generate_demonstrations
from envs.tools.tasks import draw_task, generate_tasks
from envs.wire import Message
from tests.envs.client import ROOT, run_module

envs_tools = partial(run_module, "envs.tools")


def test_validate_holds_on_a_thousand_seeds() -> None:
    summary = validate(1000)
    assert summary["ok"], summary
    assert summary["gold_score_mean"] == 1.0
    assert summary["bad_score_max"] <= 0.1


def test_validate_command_prints_its_summary() -> None:
    done = envs_tools("validate", "--seeds", "20")
    assert done.returncode == 0
    assert json.loads(done.stdout)["seeds"] == 20


def test_validate_command_fails_when_gold_does_not_score(monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.tools import server
    from envs.tools.__main__ import main

    monkeypatch.setattr(server, "score", lambda *_, **__: 0.0)
    assert main(["validate", "--seeds", "5"]) == 1


@pytest.mark.parametrize("difficulty", ["easy", "mixed"])
def test_rows_are_the_same_in_every_process(difficulty: str) -> None:
    words = (
        "tasks",
        "--count",
        "200",
        "--seed",
        "7",
        "--language",
        "both",
        "--difficulty",
        difficulty,
        "--output",
        "-",
    )
    one = envs_tools(*words, PYTHONHASHSEED="1", TZ="Asia/Tokyo")
    two = envs_tools(*words, PYTHONHASHSEED="2", TZ="America/Toronto")
    assert one.returncode == 0
    assert one.stdout == two.stdout
    assert len(one.stdout.splitlines()) == 200


def test_a_longer_series_starts_with_the_shorter_one() -> None:
    long = [task.row for task in generate_tasks(20, seed=3)]
    assert [task.row for task in generate_tasks(5, seed=3)] == long[:5]
    assert [task.row for task in generate_tasks(20, seed=4)] != long


def test_easy_arguments_are_verbatim_in_the_question() -> None:
    for seed in range(300):
        for language in ("en", "zh"):
            task = draw_task(seed, language)
            assert all(value in task.question for call in task.calls for value in call.arguments.values())
            assert len(task.question) <= 40


def test_mixed_tasks_include_two_calls_and_dates() -> None:
    tasks = list(generate_tasks(300, difficulty="mixed"))
    assert any(len(task.calls) == 2 for task in tasks)
    assert any("date" in call.arguments for task in tasks for call in task.calls)


def test_chained_tasks_need_results_of_one_turn_in_the_next() -> None:
    tasks = list(generate_tasks(200, language="both", difficulty="chained"))
    assert {task.row["language"] for task in tasks} == {"en", "zh"}
    for task in tasks:
        found, combined = task.turns
        assert 2 <= len(task.calls) <= 3 and [call.name for call in combined] == ["calculator"]
        assert task.row["answer"]["tools"] == sorted({"calculator", found[0].name})
        assert combined[0].arguments["expression"] not in task.question


def test_a_chained_task_by_value() -> None:
    tasks = generate_tasks(4000, difficulty="chained")
    task = next(task for task in tasks if task.question == "How much warmer is Cairo than Moscow?")
    assert [(call.turn, call.arguments) for call in task.calls] == [
        (0, {"city": "Cairo"}),
        (0, {"city": "Moscow"}),
        (1, {"expression": "31 - (-4)"}),
    ]
    assert (task.final, task.contains) == ("Cairo is 35 degrees warmer than Moscow.", ["35"])
    user, asking, *_results, computing, _value, final = demonstration(task)["conversation"]
    assert [len(message["tool_calls"]) for message in (asking, computing)] == [2, 1]
    assert (user["content"], final["content"]) == (task.question, task.final)


@pytest.mark.parametrize("difficulty", ["easy", "mixed"])
def test_demonstrations_show_real_results_and_a_short_sentence(difficulty: str) -> None:
    for row in generate_demonstrations(400, language="both", difficulty=difficulty):  # type: ignore[arg-type]
        user, calling, *results, final = [Message.model_validate(message) for message in row["conversation"]]
        assert (user.role, calling.role, final.role) == ("user", "assistant", "assistant")
        assert calling.content == ""
        assert [call.id for call in calling.tool_calls or []] == [result.tool_call_id for result in results]
        assert all(result.role == "tool" and not result.content.startswith(("Error", "错误")) for result in results)
        assert 20 <= len(final.content) <= 80, final.content
        assert len(row["tools"]) == 4


def test_files_are_written_and_a_bad_path_is_explained(tmp_path: Path) -> None:
    output = tmp_path / "demonstrations.jsonl"
    assert envs_tools("demonstrations", "--count", "3", "--output", str(output)).returncode == 0
    assert len(output.read_text().splitlines()) == 3
    failed = envs_tools("tasks", "--count", "3", "--output", str(tmp_path / "no" / "x.jsonl"))
    assert failed.returncode == 2
    assert "Cannot write" in failed.stderr and "Traceback" not in failed.stderr


def test_task_modules_load_neither_openenv_nor_fastapi() -> None:
    code = (
        "import sys, envs.tools.tasks, envs.tools.demonstrations, envs.tools.calculator, envs.tools.application\n"
        "print(sorted({'openenv', 'fastapi', 'uvicorn', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_tasks_are_different_as_long_as_there_are_others() -> None:
    """The demo's 512 tasks were 188."""
    rows = [str(task.row["conversation"]) for task in generate_tasks(256, difficulty="starter")]
    assert len(set(rows)) == 256
    assert len(list(generate_tasks(400, difficulty="starter"))) == 400, "there are 336; the others repeat"
