"""The in-process sampler: right distribution, right log-probabilities, independent of how requests were batched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from training.errors import PolicyFault
from training.policy.engine import Sample
from training.policy.sampling import SamplingParams, draw, uniform_draws
from training.policy.transformers_engine import TransformersEngine


def engine_for(model: Any, **params: Any) -> TransformersEngine:
    return TransformersEngine(model, stop_ids={2}, params=SamplingParams(**params))


@pytest.fixture
def engine(model: Any) -> Iterator[TransformersEngine]:
    made = engine_for(model)
    yield made
    made.close()


PROMPTS = [[5, 6, 7, 8], [5, 6], [9, 10, 11, 12, 13, 14], [5, 6, 7, 8]]


async def sample_all(engine: TransformersEngine, *, gap_s: float = 0.0, tokens: int = 12) -> list[Sample]:
    async def one(index: int) -> Sample:
        await asyncio.sleep(gap_s * index)
        return await engine.generate(PROMPTS[index % 4], max_tokens=tokens + index, seed=100 + index)

    return list(await asyncio.gather(*(one(index) for index in range(8))))


def naive(model: Any, prompt: list[int], seed: int, tokens: int) -> tuple[list[int], list[float]]:
    """Sampling one turn alone without a cache, the slow way."""
    ids, logprobs, uniforms = list(prompt), [], uniform_draws(seed, tokens)
    with torch.no_grad():
        for position in range(tokens):
            logits = model(input_ids=torch.tensor([ids])).logits[:, -1]
            picked, logprob = draw(logits, uniforms[position : position + 1], SamplingParams())
            ids.append(int(picked))
            logprobs.append(float(logprob))
            if ids[-1] == 2:
                break
    return ids[len(prompt) :], logprobs


def test_batched_turns_equal_turns_sampled_alone(engine: TransformersEngine, model: Any) -> None:
    with engine.sampling():
        samples = asyncio.run(sample_all(engine))
    model.eval()
    for index, sample in enumerate(samples):
        ids, logprobs = naive(model, PROMPTS[index % 4], 100 + index, 12 + index)
        assert sample.ids == ids
        assert sample.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert sample.finished == (ids[-1] == 2)


def test_requests_that_join_a_running_batch_change_nothing(engine: TransformersEngine) -> None:
    with engine.sampling():
        together = asyncio.run(sample_all(engine, tokens=40))
        apart = asyncio.run(sample_all(engine, gap_s=0.012, tokens=40))
    assert [sample.ids for sample in together] == [sample.ids for sample in apart]


def test_logprobs_are_those_of_the_training_forward_at_the_temperature(model: Any) -> None:
    engine = engine_for(model, temperature=0.7, top_p=0.8, top_k=20)
    with engine.sampling():
        sample = asyncio.run(engine.generate(PROMPTS[0], max_tokens=10, seed=1))
    engine.close()
    ids = torch.tensor([PROMPTS[0] + sample.ids])
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=ids).logits[0, 3:-1] / 0.7, dim=-1)
    expected = scores.gather(1, torch.tensor(sample.ids).unsqueeze(1)).squeeze(1)
    assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_turn_never_exceeds_its_limit_and_a_stop_id_ends_it(engine: TransformersEngine, model: Any) -> None:
    model.lm_head.weight.data[2] = 100 * model.lm_head.weight.data.abs().max()
    with engine.sampling():
        samples = asyncio.run(sample_all(engine))
    assert all(len(s.ids) <= 12 + i for i, s in enumerate(samples))
    assert all(s.finished == (s.ids[-1] == 2) and 2 not in s.ids[:-1] for s in samples)


def test_train_mode_and_gradients_are_as_before(engine: TransformersEngine, model: Any) -> None:
    model.train()
    model.model.norm.eval()
    with engine.sampling():
        asyncio.run(sample_all(engine))
        assert not model.training
    assert model.training and not model.model.norm.training
    loss = model(input_ids=torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss
    loss.backward()
    assert model.lm_head.weight.grad is not None


def test_a_model_that_raises_is_a_policy_fault_and_the_engine_lives_on(
    engine: TransformersEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("out of memory")

    async def faults() -> list[Any]:
        turns = (engine.generate(prompt, max_tokens=5, seed=1) for prompt in PROMPTS)
        return list(await asyncio.gather(*turns, return_exceptions=True))

    with engine.sampling():
        with monkeypatch.context() as patch:
            patch.setattr(model, "forward", explode)
            assert all(isinstance(fault, PolicyFault) for fault in asyncio.run(faults()))
        assert len(asyncio.run(sample_all(engine))) == 8


def test_cancelled_requests_free_the_engine(engine: TransformersEngine) -> None:
    async def cancel() -> None:
        tasks = [asyncio.create_task(engine.generate(p, max_tokens=500, seed=3)) for p in PROMPTS]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(engine.generate(PROMPTS[0], max_tokens=3, seed=1), timeout=5)

    with engine.sampling():
        asyncio.run(cancel())
    assert engine.busy_seconds > 0


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(20_000, 4)
    ids, logprobs = draw(logits, torch.rand(20_000, generator=torch.Generator().manual_seed(0)), SamplingParams())
    shares = torch.bincount(ids, minlength=4) / 20_000
    assert shares.tolist() == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.015)
    assert logprobs.exp().tolist()[:50] == pytest.approx(
        [[0.5, 0.3, 0.15, 0.05][i] for i in ids.tolist()[:50]], abs=1e-5
    )


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_k": 3, "top_p": 0.95}, {0, 1, 2}),
    ],
)
def test_top_k_and_top_p_cut_the_tail(params: dict[str, Any], allowed: set[int]) -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(4000, 4)
    ids, _ = draw(logits, torch.rand(4000, generator=torch.Generator().manual_seed(0)), SamplingParams(**params))
    assert set(ids.tolist()) == allowed


def test_the_largest_uniform_never_draws_an_impossible_token() -> None:
    logits = torch.tensor([[0.0, 1.0, -float("inf"), -float("inf")]])
    almost_one = torch.nextafter(torch.tensor([1.0]), torch.tensor([0.0]))
    for params in (SamplingParams(), SamplingParams(top_k=3), SamplingParams(top_p=0.9999)):
        ids, _ = draw(logits, almost_one, params)
        assert int(ids) in (0, 1)
