"""AgentGym's own WebShop client against our server: what it reads, what it earns, and what Princeton's reward gives."""

from __future__ import annotations

import importlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.parity.upstream import Tally, folder, importable, quiet
from benchmarks.parity.webshop import CATALOGUE, Engine, open_engine
from envs.webshop.baseline import wanted_options
from envs.webshop.catalogue import load_catalogue
from envs.webshop.session import Session, Shop, parse_action
from tests.envs.client import running_server

EPISODES = 320
SEED = 7


def measure(upstream: Path | None, data: Path) -> dict[str, Any]:
    """Episodes in the client's three ways to write an action, some with mistakes, from create to close."""
    root, catalogue = folder(upstream, "AgentGym", "agentenv"), folder(data, *CATALOGUE)
    shop, engine = Shop(load_catalogue(catalogue)), open_engine(upstream, catalogue)
    tally, rewards = Tally(), []
    with tempfile.TemporaryDirectory(prefix="tiltyard-parity-") as name, importable(root):
        module = importlib.import_module("agentenv.envs.webshop")
        with running_server(Path(name), "--data", str(catalogue), module="envs.webshop") as server, quiet():
            for number in range(EPISODES):
                base = f"http://127.0.0.1:{server.port}"
                style = ("react", "function_calling", "code_as_action")[number % 3]
                client = module.WebshopEnvClient(base, len(shop.goals), action_format=style)
                problem, reward = _episode(client, module.WebshopAdapter, Session(shop, shop.goals[number]), engine)
                rewards.append(reward)
                tally.add(problem is None, {"session": number, "style": style, "problem": problem})
    full = sum(reward == 1.0 for reward in rewards)
    return {"episodes": tally.report(mean_reward=sum(rewards) / len(rewards), success=full / len(rewards))}


def _episode(client: Any, adapter: Any, own: Session, engine: Engine) -> tuple[str | None, float]:
    """Play it in both places. The first difference, and what the client earned."""
    rng = random.Random(f"{SEED}:{own.goal.session_id}")
    reward = 0.0
    try:
        if client.reset(own.goal.session_id)[0] != own.page.observation:
            return "the first page differs", 0.0
        for action in _actions(own, rng):
            text = _written(adapter, client.action_format, action)
            given = client.step(text)
            turn = own.play(parse_action(adapter.action_parser(text, client.action_format)))
            if (given.state, given.done) != (turn.page.observation, own.done):
                return f"after {action}: {given.state[:200]!r}, not {turn.page.observation[:200]!r}", reward
            reward += given.reward
        return _of_purchase(own, engine, reward), reward
    finally:
        client.close()


def _of_purchase(own: Session, engine: Engine, reward: float) -> str | None:
    if own.product is None:
        return "nothing was bought"
    wanted = {**engine.goals[own.goal.session_id], "price_upper": own.goal.price_upper}
    score = engine.get_reward(engine.products[own.product.asin], wanted, own.product.price, own.options)
    return None if reward == score else f"earned {reward}, worth {score}"


def _actions(own: Session, rng: random.Random) -> Iterator[str]:
    """The three rules of the baseline, with detours and with clicks on what is not there."""
    yield f"search[{own.goal.instruction}]"
    if rng.random() < 0.3:
        yield from ("click[next >]", "click[no such thing]", "click[< prev]")
    hits = [name for name, target in own.page.clickables.items() if target.kind == "product"]
    yield f"click[{rng.choice(hits[:3]) if rng.random() < 0.3 else hits[0]}]"
    for value in wanted_options(own.goal.instruction, own.product) if own.product else ():
        if rng.random() < 0.9:
            yield f"click[{value}]"
    if rng.random() < 0.3:
        yield from ("click[features]", "search[]", "click[< prev]")
    yield "click[buy now]"


def _written(adapter: Any, style: Any, action: str) -> str:
    """A reply of a model in the client's format, by upstream's own writer where it has one."""
    if style.value == "react":
        return f"Thought:\nI think so.\n\nAction:\n{action}"
    types = importlib.import_module("agentenv.controller.types")
    return str(getattr(adapter, f"to_{style.value}")(types.ActionWithTought(thought="I think so.", action=action)))
