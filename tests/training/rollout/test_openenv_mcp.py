"""An OpenEnv server made with the package's own ``MCPEnvironment``: played, and trained against."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.wire import StepRequest, ToolCall
from tests.processes import running, wait_for_http
from tests.training.helpers import (
    ScriptedEngine,
    call_text,
    demonstration_rows,
    job_config,
    of_type,
    scripted_server,
    write_rows,
)
from tests.training.rollout.foreign import call, play, say, settings
from tests.training.rollout.test_openenv_text import observed
from training.errors import EnvironmentFault, EnvironmentProtocolError, TiltyardError
from training.journal import Journal
from training.policy.engine import Sample
from training.preflight import preflight
from training.rollout.protocols import check_server
from webapp.common.host import free_port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, log = free_port(), tmp_path_factory.mktemp("mcp") / "log"
    argv = [sys.executable, "-m", "tests.training.rollout.mcp_environment", str(port)]
    with running(argv, log) as child:
        wait_for_http(f"http://127.0.0.1:{port}/health", child, log)
        yield f"http://127.0.0.1:{port}"


def test_tools_become_functions_and_calls_earn_rewards(server: str) -> None:
    config = settings(server, "openenv-mcp", options={"reset_fields": ["word"]}, reset_timeout_s=10, step_timeout_s=10)
    turns = [call("echo", text="blue"), call("fail", reason="boom"), call("nothing"), call("echo", text="green")]
    first, wrong, failed, unknown, right = play(config, turns, {"word": "green"})
    assert [m.content for m in first.messages] == ["Say green please."]
    assert first.tools is not None and {tool["function"]["name"] for tool in first.tools} == {"echo", "fail"}
    schema = next(t["function"] for t in first.tools if t["function"]["name"] == "echo")
    assert schema["description"] == "Say a text." and schema["parameters"]["required"] == ["text"]
    assert (wrong.messages[0].content, wrong.done, wrong.reward) == ("You said blue.", False, 0.0)
    assert failed.messages[0].content.startswith("Error: ") and "boom" in failed.messages[0].content
    assert unknown.messages[0].content.startswith("Error: ") and not unknown.done
    assert (right.messages[0].tool_call_id, right.done, right.reward) == ("c1", True, 1.0)


def test_a_turn_without_a_call_ends_with_the_reward_so_far(server: str) -> None:
    config = settings(server, "openenv-mcp", reset_timeout_s=10, step_timeout_s=10)
    first, _middle, last = play(config, [call("echo", text="x"), say("I am done.")], {"messages": [{"role": "user"}]})
    assert first.messages == []  # the row brings its own
    assert (last.done, last.reward, last.messages) == (True, 0.0, [])
    assert play(config, [say("no")])[-1].reward is None
    several = StepRequest(tool_calls=[ToolCall(id=str(n), name="echo", arguments={"text": "red"}) for n in range(3)])
    answers = play(config, [several])[-1]
    assert (len(answers.messages), answers.done, answers.reward) == (1, True, 1.0)  # over at the first


def test_the_server_is_known_by_its_metadata(server: str) -> None:
    config = settings(server, "openenv-mcp", connect_timeout_s=10)
    assert check_server(config) == ("echo-tools", "0.3", None, None, None)
    with pytest.raises(EnvironmentProtocolError, match="'echo-tools', not 'tools'"):
        check_server(config.model_copy(update={"name": "tools"}))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (observed(tools="x"), EnvironmentProtocolError),
        (observed(tools=[{"name": 3}]), EnvironmentProtocolError),
        (observed(tools=[], metadata={"error": "list failed"}), EnvironmentFault),
        (observed(), EnvironmentProtocolError),
    ],
)
def test_a_bad_list_of_tools_has_its_typed_error(listed: str, expected: type[TiltyardError]) -> None:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return listed if turn else observed(prompt="go")

    with scripted_server(behave) as url, pytest.raises(expected):
        play(settings(url, "openenv-mcp"), [])


class Speaker(ScriptedEngine):
    """Rollouts with an even number say the word that the environment waits for, the others another one."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, [call_text("red")])
        self._other = ScriptedEngine(tokenizer, [call_text("blue"), "It is said."])

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        generate = super().generate if int(episode[-1]) % 2 == 0 else self._other.generate
        return await generate(prompt_ids, max_tokens=max_tokens, seed=seed, episode=episode)


def test_grpo_trains_against_it(server: str, starter_folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    from training.algorithms.grpo import run_grpo
    from training.algorithms.job import Job

    config = job_config(
        data={"train": str(write_rows(tmp_path / "rows.jsonl", demonstration_rows(), prompts_only=True))},
        model={"source": str(starter_folder)},
        environment={"url": server, "protocol": "openenv-mcp", "name": "echo-tools", "step_timeout_s": 20},
    )
    checks = {check.check: check for check in preflight(config, load_template=False)}
    assert checks["environment"].message == "echo-tools 0.3 answers."
    assert checks["slots"].ok and "does not report" in checks["slots"].message
    job = Job(config, tmp_path / "run", Journal(tmp_path / "run"), threading.Event())
    run_grpo(job, engine=Speaker(tokenizer))
    ends = of_type(tmp_path / "run", "rollout_finished")
    assert len(ends) == 16 and [end.error for end in ends] == [None] * 16
    assert {(end.rollout[-1] in "02", end.parts["task_success"], end.turns) for end in ends} == {
        (True, 1.0, 1),
        (False, 0.0, 2),
    }
    results = {m.content for turn in of_type(tmp_path / "run", "turn") for m in turn.messages if m.role == "tool"}
    assert results == {"You said red.", "You said blue."}
    metrics = of_type(tmp_path / "run", "metrics")
    assert [event.step for event in metrics] == [1, 2] and all(event.values["grad_norm"] > 0 for event in metrics)
    assert all(event.values["reward"] == 0.5 for event in metrics)
