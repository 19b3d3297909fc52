"""Reward components over random episodes, against the published reward code or, where that may not be used, its text.

HelloAgents' code is under a licence that this project keeps away from: its formulas are written here a second time from
its documents. Advantages are TRL's own lines.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.parity.upstream import Skipped, Tally, folder, importable
from benchmarks.parity.webshop import CATALOGUE, open_engine
from envs.webshop.catalogue import load_catalogue
from envs.webshop.session import Shop
from envs.wire import Message, ToolCall
from tests.training.rewards.test_toolbench_reference import Turn, as_episode, latest_total, some_episode
from tests.training.rollout.test_advantages import trl_advantages
from training.config import RewardComponent
from training.rewards.base import Episode
from training.rewards.bfcl import STAGE_1_SPEC, STAGE_3_SPEC
from training.rewards.combining import group_statistics, reward_std
from training.rewards.helloagents import COMBINED_SPEC
from training.rewards.scoring import COMPONENTS, score_episode
from training.rewards.tool_calling import TOOL_CALLING
from training.rewards.toolbench import LATEST_SPEC, SEED_SPEC

EPISODES = 1000
NOISE, FLOAT32_NOISE = 1e-9, 2e-5
LITERAL = ("result_use", "final_answer")


def measure(upstream: Path | None, data: Path) -> dict[str, Any]:
    """By family; one that lacks its upstream is skipped and does not stop the others."""
    parts: dict[str, Callable[[], Tally]] = {
        "tool calling": lambda: tool_calling(upstream),
        "toolbench, first version": lambda: toolbench_seed(upstream),
        "toolbench, latest version": lambda: toolbench_latest(upstream),
        "bfcl": lambda: bfcl(upstream),
        "webshop": lambda: webshop(upstream, data),
        "helloagents": helloagents,
        "advantages": advantages,
    }
    found: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            found[name] = part().report()
        except Skipped as reason:
            found[name] = {"skipped": str(reason)}
    return found


def _near(first: float, second: float, tolerance: float = NOISE) -> bool:
    return abs(first - second) <= tolerance


def _loaded(path: Path, name: str) -> ModuleType:
    """A module of a file: two versions of one name live side by side."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Skipped(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Multi-turn tool calling

QUESTIONS = (
    "帮我计算一下 25 * 37",
    "你好",
    "What is the weather in Oslo?",
    "search for cats",
    "Hello there",
    "现在几点",
)
ANSWERS = (
    "",
    "ok",
    "The result is 925 as you asked",
    "抱歉 缺少城市参数",
    "计算 的 结果 是 925 元",
    "Oslo is sunny " * 5,
)
RESULTS = ("925", "Oslo sunny 18 degrees", "Results found: cats are animals", "北京在今天的天气：晴朗", "", "a b c d")
ERRORS = ("缺少城市参数", "未知工具: abacus", "计算错误: division", "参数 无效", "超时")


def tool_calling(upstream: Path | None) -> Tally:
    """The published class, with our components set to its own rule for words."""
    with importable(folder(upstream, "demo", "multiturn_with_toolcall")):
        reward = importlib.import_module("reward_functions").ToolCallRewardFunction()
    spec = [
        RewardComponent(name=item.name, weight=item.default_weight, params=_literal(item.name)) for item in TOOL_CALLING
    ]
    rng, tally = random.Random(1), Tally()
    for _ in range(EPISODES):
        asked = rng.choice(QUESTIONS)
        turns = [_tool_turn(rng) for _ in range(rng.randint(0, 3))]
        turns.append((rng.choice(ANSWERS), []))
        ours = score_episode(_conversation(asked, turns), spec).total
        history = [{"cleaned_response": text, "tool_calls": results} for text, results in turns]
        results = [{"result": result} for _, given in turns for result in given]
        theirs = reward.compute_reward(history, results, results, turns[-1][0], asked)
        tally.add(_near(ours, theirs), {"asked": asked, "turns": turns, "ours": ours, "upstream": theirs})
    return tally


def _literal(name: str) -> dict[str, str]:
    return {"words": "literal"} if name in LITERAL else {}


def _tool_turn(rng: random.Random) -> tuple[str, list[dict[str, Any]]]:
    """A text and what its calls led to, in upstream's form."""
    failed = {"success": False, "result": None, "error": rng.choice(ERRORS)}
    worked = {"success": True, "result": rng.choice(RESULTS), "error": ""}
    return rng.choice(("", "Let me see")), rng.choices((worked, failed), weights=(2, 1), k=rng.randint(0, 2))


def _conversation(asked: str, turns: list[tuple[str, list[dict[str, Any]]]]) -> Episode:
    messages = [Message(role="user", content=asked)]
    for number, (text, results) in enumerate(turns):
        calls = [ToolCall(id=f"{number}.{place}", name="tool") for place, _ in enumerate(results)]
        messages.append(Message(role="assistant", content=text, tool_calls=calls or None))
        for call, result in zip(calls, results, strict=True):
            reply = result["result"] if result["success"] else f"错误: {result['error']}"
            messages.append(Message(role="tool", content=reply, tool_call_id=call.id))
    return Episode(messages, 1)


# ToolBench

SEARCH_R1 = ("search_r1", "llm_agent", "toolbench_reward.py")
FINISH = {"answer": "give_answer", "give_up": "give_up_and_restart", "other": "other"}


def toolbench_seed(upstream: Path | None) -> Tally:
    """The version of the guide: its three parts with its weights, over the response with its observations."""
    with importable(folder(upstream), verl={"DataProto": Any}):
        manager = _loaded(folder(upstream, "Search-R1-4ca2ab8b", *SEARCH_R1), "parity_seed").ToolBenchRewardManager(
            None
        )

    def theirs(turns: list[Turn]) -> float:
        text = "".join(text_of_turn + answer for text_of_turn, answer, _ in turns)
        kinds = [kind for _, _, kind in turns]
        meta = {
            "api_errors": {0: [kind == "bad" for kind in kinds if kind in ("ok", "bad")]},
            "finish_called": {0: FINISH.get(kinds[-1])},
        }
        form = manager._compute_format_reward(text, 1)
        calls = manager._compute_function_call_reward(0, meta, 1)
        finish = manager._compute_finish_reward(text, 0, meta, 1)
        return float(0.1 * form + 0.2 * calls + 0.3 * finish)

    return _toolbench(SEED_SPEC, theirs)


def toolbench_latest(upstream: Path | None) -> Tally:
    """The last version, without its remote judge."""
    with importable(folder(upstream), verl={"DataProto": Any}):
        manager = _loaded(folder(upstream, "Search-R1", *SEARCH_R1), "parity_latest").ToolBenchRewardManager(None)

    def theirs(turns: list[Turn]) -> float:
        kinds = [kind for _, _, kind in turns]
        meta = {
            "turns_stats": [len(turns)],
            "valid_action_stats": [[kind != "invalid" for kind in kinds]],
            "valid_api_call_stats": [[kind == "ok" for kind in kinds]],
            "active_mask": [kinds[-1] not in FINISH],
        }
        earlier = manager._compute_format_and_function_call_reward(meta)
        return float(sum(earlier[0]) + manager._compute_finish_reward(meta)[0])

    tally = _toolbench(LATEST_SPEC, theirs)
    tally.add(
        _near(theirs([("", "", "ok"), ("", "", "answer")]), latest_total([("", "", "ok"), ("", "", "answer")])), ""
    )
    return tally


def _toolbench(spec: list[RewardComponent], theirs: Callable[[list[Turn]], float]) -> Tally:
    rng, tally = random.Random(2), Tally()
    for _ in range(EPISODES):
        turns = some_episode(rng)
        ours, upstream = score_episode(as_episode(turns), spec).total, theirs(turns)
        tally.add(_near(ours, upstream), {"turns": turns, "ours": ours, "upstream": upstream})
    return tally


# BFCL and WebShop


def bfcl(upstream: Path | None) -> Tally:
    """Both published reward files, over random codes."""
    with importable(folder(upstream, "AWorld-RL", "EnvTuning")):
        modules = [importlib.import_module(f"env_tuning.{name}") for name in ("format_reward", "bfcl_reward")]
    rng, tally = random.Random(3), Tally()
    for _ in range(EPISODES):
        codes = rng.choices((-1, -2, -3, 0, 1), k=rng.randint(1, 12))
        played = Episode([Message(role="user", content="q")], 1, row={"user_turn_rewards": codes})
        for spec, module in zip((STAGE_1_SPEC, STAGE_3_SPEC), modules, strict=True):
            theirs = module.compute_score({"user_turn_rewards": codes}, [])["score"]
            tally.add(_near(score_episode(played, spec).total, theirs), codes)
    return tally


def webshop(upstream: Path | None, data: Path) -> Tally:
    """Components over the environment's reports of purchases, against upstream's reward of the same."""
    catalogue = folder(data, *CATALOGUE)
    shop, engine = Shop(load_catalogue(catalogue)), open_engine(upstream, catalogue)
    names = {"webshop_type": "r_type", "webshop_attributes": "r_att", "webshop_options": "r_option"}
    rng, tally = random.Random(4), Tally()
    for _ in range(EPISODES):
        number = rng.randrange(len(shop.goals))
        goal, product = shop.goals[number], rng.choice(shop.catalogue.products)
        product = rng.choice((goal.product, product))
        options = {name: rng.choice(values) for name, values in product.options.items()}
        parts = shop.score(product, options, goal).parts
        played = Episode([], 0, env_parts=parts, env_reward=parts["score"])
        wanted = {**engine.goals[number], "price_upper": goal.price_upper}
        score, info = engine.get_reward(engine.products[product.asin], wanted, product.price, options, verbose=True)
        expected = {name: info.get(part, 1.0) for name, part in names.items()}  # no options asked: 1 by our choice
        expected |= {"webshop_price": info["r_price"], "webshop_score": score, "webshop_success": score == 1.0}
        found = {name: COMPONENTS[name].score(played, COMPONENTS[name].params()) for name in expected}
        tally.add(found == expected, {"goal": number, "ours": found, "upstream": expected})
    return tally


# HelloAgents, from its documents

PIECES = (
    *(
        "Final Answer: 72",
        "#### 72",
        "#### $1,072.50",
        "答案是72",
        "答案：71",
        "Therefore, the answer is 72.",
        "So it is 72",
    ),
    *(
        "\n",
        "\n",
        "\n\n",
        " ",
        "48/2 = 24",
        "Step 1: add",
        "25% of 288 is 72",
        "no number here",
        "Final Answer: none",
        "x" * 150,
    ),
)


def helloagents() -> Tally:
    """Accuracy, length by the code's formula, and steps by line breaks, with chapter 11's weights."""
    rng, tally = random.Random(5), Tally()
    for _ in range(EPISODES):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 8)))
        truth = rng.choice((72.0, 1072.5, 71.0))
        messages = [Message(role="user", content="q"), Message(role="assistant", content=text)]
        ours = score_episode(Episode(messages, 1, row={"ground_truth": str(truth)}), COMBINED_SPEC).total
        expected = _helloagents(text, truth)
        tally.add(_near(ours, expected), {"text": text, "truth": truth, "ours": ours, "document": expected})
    return tally


def _helloagents(text: str, truth: float) -> float:
    found = _final_number(text)
    right = 1.0 if found is not None and abs(found - truth) < 1e-4 else 0.0
    limit, weight = 200, 0.001
    length = max(0.0, right - weight * (len(text) - limit) / limit) if len(text) > limit else right
    return right + 0.5 * length + 0.3 * (right + min(0.1 * text.count("\n"), 0.5))


def _final_number(text: str) -> float | None:
    """After the first mark that is there, in the documents' order; else the last number of the last line with one."""
    for mark in ("Final Answer:", "####", "答案", "Therefore"):
        place = text.lower().find(mark.lower())
        rest = text[place + len(mark) :].split("\n")[0] if place >= 0 else ""
        if rest.strip(" \t:：,是"):
            return next(_numbers_of(rest), None)
    for line in reversed(text.splitlines()):
        if values := list(_numbers_of(line)):
            return values[-1]
    return None


def _numbers_of(text: str) -> Iterator[float]:
    for word in re.findall(r"-?\d[\d,]*\.?\d*", text):
        yield float(word.replace(",", "").rstrip("."))


# Advantages


def advantages() -> Tally:
    """Groups of eight with up to half missing, by all three ways to scale."""
    rng, tally = random.Random(6), Tally()
    for number in range(EPISODES):
        scale = ("group", "batch", "none")[number % 3]
        missing = rng.choice((0.0, 0.2, 0.5))
        rewards = [None if rng.random() < missing else rng.choice((rng.random(), 0.0, 1.0, -2.5)) for _ in range(32)]
        spread = reward_std(rewards)
        ours = [
            value or 0.0
            for start in range(0, 32, 8)
            for value in group_statistics(rewards[start : start + 8], scale=scale, batch_std=spread).advantages  # type: ignore[arg-type]
        ]
        theirs = trl_advantages(rewards, 8, scale)
        gap = max(abs(own - other) for own, other in zip(ours, theirs, strict=True))
        tally.add(gap <= FLOAT32_NOISE, {"scale": scale, "rewards": rewards, "gap": gap})
    return tally
