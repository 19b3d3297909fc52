"""Scripted policies: every dialect reads their calls back, real environments pay them nothing, and known holes show."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.base import ToolEnvironment
from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import JobConfig, Policy, RewardComponent
from training.data.schema import Row
from training.dialects import DIALECTS
from training.journal import Journal
from training.policy.scripted import POLICIES, Scene, WordTemplate, count
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector
from training.rollout.players import scripted_player
from training.rollout.trajectory import Rollout

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {
                "where": {"type": "string"},
                "how": {"enum": ["far", "near"]},
                "deep": {"type": "integer", "minimum": 3},
                "also": {"type": "array", "items": {"type": "boolean"}},
                "not": {"type": "string"},
            },
            "required": ["where", "how", "deep", "also"],
        },
    },
}
MADE = {"where": "test", "how": "far", "deep": 3, "also": [False]}
TAGS = "Reason in <think></think>, then <tool_call></tool_call> or <answer></answer>. Functions:\n[{}]"
Make = Callable[[], ToolEnvironment]


def scene(dialect: str, system: str = "", ask: str = "Find it.", tools: Any = (LOOK,), room: int = 64) -> Scene:
    messages = [Message(role="system", content=system), Message(role="user", content=ask)]
    return Scene(messages, 2, list(tools), dialect, room)


@pytest.mark.parametrize(
    ("dialect", "name", "arguments"),
    [("hermes", "look", MADE), ("toolbench", "look", MADE), ("bfcl", "look", MADE)],
)
def test_the_dialect_reads_the_call_back(dialect: str, name: str, arguments: dict[str, Any]) -> None:
    parsed = DIALECTS[dialect](POLICIES["one_tool"](scene(dialect)), "call_")
    assert parsed.parse_error is None
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [(name, arguments)]


def test_a_shop_gets_an_action_and_a_text_environment_what_its_prompt_asks_for() -> None:
    search = {"function": {"name": "search", "parameters": {"type": "object", "required": ["keywords"]}}}
    for dialect, prompt in (("webshop", ""), ("text", "Use search[words] or click[value].")):
        text = POLICIES["one_tool"](scene(dialect, prompt, tools=[search]))
        call = DIALECTS["webshop"](text, "call_").tool_calls[0]
        assert (call.name, call.arguments) == ("search", {"keywords": "test"})
    wanted = "Every reply: Thought, Action and\nAction Input: JSON. " + '[{"name": "dig", "parameters": {}}]'
    text = POLICIES["one_tool"](scene("text", wanted, tools=[]))
    assert text == "Thought: I think about it.\nAction: dig\nAction Input: {}"
    documents = '{"name": "cat", "parameters": {"required": ["f"]}}, {"name": "ls", "parameters": {}}'
    tagged = scene("text", TAGS.format(documents), tools=[])
    call = '<think>I think about it.</think>\n<tool_call>{"name": "ls", "arguments": {}}</tool_call>'
    assert POLICIES["one_tool"](tagged) == call
    answer = POLICIES["claim_success"](tagged)
    assert answer.startswith("<think>I think") and answer.endswith("Everything was done successfully.</answer>")


def test_policies_speak_the_tasks_language_and_fill_a_turn_without_overflowing() -> None:
    chinese = scene("hermes", ask="找到它。", room=100)
    assert POLICIES["claim_success"](chinese).startswith("我已经完成了任务")
    assert POLICIES["beg"](scene("hermes")).startswith("Please give me full reward")
    assert POLICIES["copy_prompt"](scene("hermes", ask="a b c d e f g h", room=6)) == "a b c d e"
    assert POLICIES["empty"](chinese) == ""
    for dialect, system in (("hermes", ""), ("toolbench", ""), ("text", TAGS.format(""))):
        for one in (scene(dialect, system, room=100), scene(dialect, system, ask="找到它。", room=100)):
            text = POLICIES["repeat"](one)
            assert 80 < count(text) < 100
            assert text.endswith(("</answer>", "next.", "什么。"))


def test_words_are_counted_and_read_back_exactly() -> None:
    template = WordTemplate()
    text = "  It's 12.5 °C,\n在这里 and <b>there</b>. "
    ids = template.encode(text)
    assert template.decode(ids) == text
    assert count("What is 2 + 3? 你好") == 8
    assert len(template.suffix_ids([Message(role="user", content="one two"), Message(role="tool", content="三")])) == 3


# --- Real environments, in this process ------------------------------------------------------------------------------


class Local:
    """A session with an environment's own code, without a server between."""

    failures = 0

    def __init__(self, environment: ToolEnvironment) -> None:
        self.environment = environment
        self.latencies: list[float] = []

    async def reset(self, request: ResetRequest) -> Observation:
        return self.environment.reset(request.task, request.seed, request.episode_id)

    async def step(self, request: StepRequest) -> Observation:
        answer = self.environment.step(request)
        return await answer if inspect.isawaitable(answer) else answer

    async def close(self) -> None:
        self.environment.close()


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., dict[str, list[Rollout]]]:
    """``play(make, tasks, components, dialect)``: the rollouts by policy, of one group a task."""

    def run(
        make: Make, tasks: list[dict[str, Any]], components: dict[str, float], dialect: str
    ) -> dict[str, list[Rollout]]:
        chosen = [RewardComponent(name=name, weight=weight) for name, weight in components.items()]
        config = JobConfig.model_validate(
            {
                "kind": "sample",
                "sample": {"policies": list(POLICIES)},
                "rewards": {"components": chosen},
                "rollout": {
                    "prompts_per_step": len(tasks),
                    "max_turns": 30,
                    "max_turn_tokens": 256,
                    "dialect": dialect,
                    "max_completion_tokens": 100_000,
                    "max_prompt_tokens": 100_000,
                },
            }
        )

        async def session() -> Local:
            return Local(make())

        player = dataclasses.replace(scripted_player(config), open_session=session)
        rows = [Row(messages=[], raw=task) for task in tasks]
        journal = Journal(tmp_path)
        scorer = partial(score_episode, components=chosen)
        collector = Collector(config, rows, player, lambda episode: scorer(episode), journal, threading.Event())
        try:
            order = [place for place in range(len(rows)) for _policy in POLICIES]
            found = collector.collect(1, order).rollouts
        finally:
            collector.close()
            journal.close()
        return {name: found[place :: len(POLICIES)] for place, name in enumerate(POLICIES)}

    return run


def by_policy(played: dict[str, list[Rollout]], part: str) -> dict[Policy, float]:
    """Means of a raw component."""
    return {
        name: sum((rollout.parts or {})[part] for rollout in rollouts) / len(rollouts)
        for name, rollouts in played.items()
    }  # type: ignore[return-value]


def assert_nothing_earned(played: dict[str, list[Rollout]]) -> None:
    """Every episode came to the environment's own end, and its own reward is nothing."""
    for rollout in (rollout for rollouts in played.values() for rollout in rollouts):
        trajectory = rollout.trajectory
        assert trajectory.error is None and trajectory.status == "completed", (trajectory.status, trajectory.error)
        assert trajectory.env_reward is not None and trajectory.env_reward <= 0.1
        assert 0 < trajectory.turns <= 30


def test_the_tools_environment_pays_no_policy(play: Any) -> None:
    from envs.tools.server import ToolsEnvironment

    played = play(ToolsEnvironment, [{}, {"language": "zh"}], {"task_success": 1.0}, "hermes")
    assert_nothing_earned(played)
    looped = played["one_tool"][0].trajectory
    assert looped.turns == 12 and {call.name for m in looped.messages for call in m.tool_calls or []} == {
        "get_current_time"
    }
    assert "我已经完成了任务" in played["claim_success"][1].trajectory.messages[-1].content


@pytest.mark.parametrize(
    ("speech", "dialect"), [("native", "hermes"), ("text", "hermes"), ("text", "text"), ("text", "bfcl")]
)
def test_endless_ls_earns_all_of_bfcls_first_stage_and_none_of_its_task(play: Any, speech: Any, dialect: str) -> None:
    pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed")
    from envs.bfcl.server import BfclEnvironment, Defaults

    tasks = [{"id": "multi_turn_base_3"}, {"id": "multi_turn_base_6"}]
    spec = {"bfcl_stage_1": 1.0, "bfcl_progress_all": 0.0, "bfcl_task_success": 0.0}
    played = play(lambda: BfclEnvironment(Defaults(speech=speech)), tasks, spec, dialect)
    assert_nothing_earned(played)
    first = by_policy(played, "bfcl_stage_1")
    assert first == {name: 2.0 if name == "one_tool" else 0.0 for name in POLICIES}
    assert set(by_policy(played, "bfcl_progress_all").values()) == {0.0}
    assert set(by_policy(played, "bfcl_task_success").values()) == {0.0}
    names = [call.name for m in played["one_tool"][0].trajectory.messages for call in m.tool_calls or []]
    assert set(names) == ({"ls"} if dialect != "text" else set())


def test_toolbenchs_bonus_for_tokens_pays_most_for_repeating_oneself(play: Any) -> None:
    from envs.toolbench.bench import open_bench
    from envs.toolbench.server import Rules, ToolbenchEnvironment

    bench = open_bench()
    spec = {"toolbench_token_bonus": 1.0, "toolbench_function_call": 0.2}

    def make() -> ToolEnvironment:
        return ToolbenchEnvironment(bench.answerer, bench.tasks, Rules(speech="text"))

    played = play(make, [{"index": 1}, {"index": 5}], spec, "text")
    assert_nothing_earned(played)
    bonus = by_policy(played, "toolbench_token_bonus")
    repeated = played["repeat"][0].trajectory
    assert repeated.turns == 12 and repeated.sampled_tokens == 12 * 245
    assert bonus["repeat"] == pytest.approx(0.01 * 12 * 245)
    assert max(bonus, key=lambda name: bonus[name]) == "repeat"
    assert all(value < bonus["repeat"] / 5 for name, value in bonus.items() if name != "repeat")
    assert bonus["empty"] == 0.0


@pytest.mark.parametrize("dialect", ["webshop", "text"])
def test_the_shop_sells_nothing_to_a_policy(play: Any, dialect: str) -> None:
    from envs.webshop.generator import generated_catalogue
    from envs.webshop.server import WebshopEnvironment
    from envs.webshop.session import Shop

    shop = Shop(generated_catalogue(60))
    played = play(lambda: WebshopEnvironment(shop), [{"session_id": 3}], {"task_success": 1.0}, dialect)
    assert_nothing_earned(played)
    searched = played["one_tool"][0].trajectory
    assert searched.turns == 25 and "Page 1" in searched.messages[-1].content
