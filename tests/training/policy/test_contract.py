"""What every engine promises: turns fixed by ids, weights and seed; weights that change; figures that are true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.helpers import scripted_server
from tests.training.policy.families import tiny_model
from tests.training.policy.test_families import engine_of
from tests.training.rollout.test_collector import Bench
from training.policy.engine import Engine, Sample
from training.rewards.base import Episode, Score


@pytest.fixture
def tiny() -> Any:
    return tiny_model("qwen3")


@pytest.fixture
def engine(tiny: Any) -> Iterator[Engine]:
    made = engine_of(tiny)
    yield made
    made.close()


async def turn(engine: Engine, ids: list[int], seed: int, episode: str = "") -> Sample:
    return await engine.generate(ids, max_tokens=12, seed=seed, episode=episode)


def test_ids_weights_and_seed_fix_the_turn_whatever_else_is_sampled(engine: Engine) -> None:
    ids = [5, 6, 7, 8, 9]

    async def among(others: int) -> Sample:
        crowd = [asyncio.create_task(turn(engine, [10 + n] * (3 + n), seed=n)) for n in range(others)]
        await asyncio.sleep(0.01 * (others % 3))  # it joins a batch that is running, or begins one
        sample = await turn(engine, ids, seed=77)
        await asyncio.gather(*crowd)
        return sample

    with engine.sampling():
        samples = [asyncio.run(among(others)) for others in (0, 3, 7, 8)]
        other = asyncio.run(turn(engine, ids, seed=78))
    assert [sample.ids for sample in samples] == [samples[0].ids] * 4
    for sample in samples:
        assert sample.logprobs == pytest.approx(samples[0].logprobs, abs=1e-4)
    assert other.ids != samples[0].ids


def test_new_weights_forget_what_was_computed_with_the_old(engine: Engine, tiny: Any) -> None:
    """A parked cache of the old weights would be continued under the new ones."""

    async def two_turns(changes: bool) -> Sample:
        first = await turn(engine, [5, 6, 7], seed=1, episode="one")
        await asyncio.sleep(0.05)  # the worker parks and sleeps
        if changes:
            with torch.no_grad():
                for parameter in tiny.parameters():
                    parameter.mul_(1.5)
            engine.weights_changed()
        return await turn(engine, [5, 6, 7, *first.ids, 20, 21], seed=2, episode="one")

    with engine.sampling():
        first = asyncio.run(turn(engine, [5, 6, 7], seed=1))
        before = engine.version
        continued = asyncio.run(two_turns(changes=True))
        fresh = asyncio.run(turn(engine, [5, 6, 7, *first.ids, 20, 21], seed=2))
    assert engine.version == before + 1
    assert continued.ids == fresh.ids
    assert continued.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)


def test_busy_time_counts_work_in_progress_and_turns_and_tokens(engine: Any) -> None:
    """It was added when the worker ended, and read when the last turn had just been answered."""

    async def long() -> tuple[float, float, Sample]:
        began = time.monotonic()
        other = asyncio.create_task(engine.generate([9] * 6, max_tokens=200, seed=4))
        await asyncio.sleep(0.005)
        early = engine.figures.busy_seconds
        await asyncio.sleep(0.02)
        assert engine.figures.busy_seconds > early + 0.01 and engine.figures.turns == 1  # no call was answered yet
        sample = await engine.generate([5, 6, 7], max_tokens=60, seed=3)
        spent = time.monotonic() - began
        busy = engine.figures.busy_seconds - before
        await other
        return spent, busy, sample

    with engine.sampling():
        asyncio.run(turn(engine, [4], seed=1))
        asyncio.run(asyncio.sleep(0.05))
        idle, before = engine.figures, engine.figures.busy_seconds
        assert idle.turns == 1
        spent, busy, sample = asyncio.run(long())
        assert 0.7 * spent < busy <= spent + 0.01
        assert engine.figures.turns == 3 and engine.figures.tokens > len(sample.ids)


def test_a_run_without_an_environment_books_its_generation_as_generation(tmp_path: Path, tokenizer: Any) -> None:
    """All of it was booked as environment."""
    model = tiny_model("qwen3")
    model.resize_token_embeddings(len(tokenizer))
    engine = engine_of(model)
    bench = Bench(tmp_path, tokenizer, "", engine=engine, scorer=lambda episode: Score(parts={}, total=0.0))
    try:
        with engine.sampling():
            bench.collect()  # the first one warms up
            figures = bench.collect(step=2).figures
    finally:
        bench.collector.close()
        engine.close()
    generation, environment = figures["timing/generation"], figures["timing/environment"]
    assert generation > 0.02 and environment < 0.25 * generation


class Seeds:
    """An engine that notes the seed of each turn and answers in no time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.of_turn: dict[tuple[str, int], int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        self.of_turn[episode, sum(name == episode for name, _ in self.of_turn)] = seed
        sample: Sample = await self._inner.generate(prompt_ids, max_tokens=max_tokens, seed=seed, episode=episode)
        return sample


def test_every_turn_of_every_rollout_draws_with_its_own_seed(tmp_path: Path, tokenizer: Any) -> None:
    """One seed for all turns of an episode survived every test: each turn would draw the same numbers again."""

    def score(episode: Episode) -> Score:
        return Score(parts={}, total=0.0)

    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=score)
        seeds = Seeds(bench.engine)
        object.__setattr__(bench.collector.player, "engine", seeds)
        bench.collect(step=1)
        bench.collect(step=2)
    turns: dict[str, list[int]] = {}
    for (episode, _number), seed in seeds.of_turn.items():
        turns.setdefault(episode, []).append(seed)
    assert len(turns) == 2 * 8 and all(len(found) == 2 for found in turns.values())
    assert len({seed for found in turns.values() for seed in found}) == 2 * 8 * 2


def test_a_scripted_players_engine_keeps_the_whole_contract() -> None:
    from training.rollout.players import NoEngine

    engine: Engine = NoEngine()
    with engine.sampling():
        engine.release("one")
    assert engine.weights_changed() == engine.version == 0 and engine.figures.busy_seconds == 0.0
    engine.close()
