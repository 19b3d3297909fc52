"""The in-process sampler: right distribution, right log-probabilities, independent of how requests were batched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from training.errors import PolicyFault
from training.policy.attention import GROUPED, sampling_attention
from training.policy.engine import Sample, SamplingParams
from training.policy.transformers_engine import TransformersEngine, draw, uniform_draws


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


async def play(
    engine: TransformersEngine, index: int, *, turns: int, episode: str = "", pause_s: float = 0.0
) -> list[Sample]:
    """An episode of several turns with an environment's answer after each."""
    ids, samples = list(PROMPTS[index % 4]), []
    for turn in range(turns):
        sample = await engine.generate(ids, max_tokens=6 + index, seed=500 + 10 * index + turn, episode=episode)
        samples.append(sample)
        ids = ids + sample.ids + [20 + turn] * (1 + index % 3)
        await asyncio.sleep(pause_s * (1 + index % 3))
    engine.release(episode)
    return samples


def play_all(engine: TransformersEngine, *, named: bool, pause_s: float = 0.0) -> list[list[Sample]]:
    async def everyone() -> list[list[Sample]]:
        names = [f"episode {index}" if named else "" for index in range(8)]
        return list(
            await asyncio.gather(
                *(play(engine, i, turns=4, episode=name, pause_s=pause_s) for i, name in enumerate(names))
            )
        )

    with engine.sampling():
        samples = asyncio.run(everyone())
        assert len(engine._parking) == 0  # every episode ended
    return samples


@pytest.mark.parametrize("pause_s", [0.0, 0.01])
def test_a_continued_episode_samples_what_a_fresh_prompt_would(engine: TransformersEngine, pause_s: float) -> None:
    fresh, continued = play_all(engine, named=False), play_all(engine, named=True, pause_s=pause_s)
    for one, other in zip(fresh, continued, strict=True):
        assert [sample.ids for sample in one] == [sample.ids for sample in other]
        for left, right in zip(one, other, strict=True):
            assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


def test_a_continued_episode_feeds_only_what_is_new(
    engine: TransformersEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    forward = type(model).forward

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        fed.append(kwargs["input_ids"].shape[1])
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", counting)
    with engine.sampling():
        samples = asyncio.run(play(engine, 2, turns=3, episode="one"))
    assert fed[:2] == [1, 6]  # one token to measure what a row costs, then the prompt
    assert [count for count in fed[2:] if count > 1] == [4, 4]  # the last id of a turn and the three of the answer
    assert len(samples) == 3


def test_a_prompt_that_does_not_continue_its_episode_starts_again(engine: TransformersEngine) -> None:
    async def twice() -> tuple[Sample, Sample]:
        await engine.generate(PROMPTS[2], max_tokens=5, seed=1, episode="one")
        other = await engine.generate(PROMPTS[0], max_tokens=5, seed=2, episode="one")
        return other, await engine.generate(PROMPTS[0], max_tokens=5, seed=2)

    with engine.sampling():
        other, plain = asyncio.run(twice())
    assert other.ids == plain.ids


def test_nothing_is_kept_beyond_the_weights_it_was_computed_with(engine: TransformersEngine) -> None:
    with engine.sampling():
        asyncio.run(engine.generate(PROMPTS[0], max_tokens=5, seed=1, episode="one"))
        asyncio.run(asyncio.sleep(0.05))
        engine._pool.submit(lambda: None).result()
        assert len(engine._parking) == 1
    assert len(engine._parking) == 0


def test_the_oldest_parked_rows_leave_when_room_is_short(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.policy.transformers_engine.PARKED_SHARE", 1e-7)
    fresh, continued = play_all(engine, named=False), play_all(engine, named=True)
    assert [[s.ids for s in one] for one in fresh] == [[s.ids for s in one] for one in continued]


def test_sampling_attention_gives_what_sdpa_gives(model: Any) -> None:
    heads = model.config.num_attention_heads // model.config.num_key_value_heads
    assert heads > 1, "the tiny model must share key heads, or this proves nothing"
    prompt = torch.tensor([[5, 6, 7, 8], [0, 0, 5, 6]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    model.eval()

    def last_logits() -> Any:
        with torch.no_grad():
            cache = model(input_ids=prompt, attention_mask=mask[:, :4], use_cache=True).past_key_values
            return model(input_ids=torch.tensor([[9], [9]]), attention_mask=mask, past_key_values=cache).logits

    plain = last_logits()
    with sampling_attention(model):
        assert model.config._attn_implementation == GROUPED
        grouped = last_logits()
    assert model.config._attn_implementation == "sdpa"
    assert torch.allclose(plain, grouped, atol=1e-5)


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


def test_autocast_samples_in_the_precision_of_the_loss(model: Any) -> None:
    engine = TransformersEngine(model, stop_ids={2}, params=SamplingParams(), autocast=torch.bfloat16)
    computed: set[torch.dtype] = set()
    watched = model.lm_head.register_forward_hook(lambda _layer, _given, made: computed.add(made.dtype))
    with engine.sampling():
        sample = asyncio.run(engine.generate(PROMPTS[0], max_tokens=10, seed=1))
    engine.close()
    watched.remove()
    assert computed == {torch.bfloat16}
    ids = torch.tensor([PROMPTS[0] + sample.ids])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = model(input_ids=ids).logits[0, 3:-1].float()
    with torch.no_grad():
        full = model(input_ids=ids).logits[0, 3:-1]
    drawn = torch.tensor(sample.ids).unsqueeze(1)
    apart = [
        (torch.tensor(sample.logprobs) - torch.log_softmax(logits, dim=-1).gather(1, drawn).squeeze(1)).abs().mean()
        for logits in (low, full)
    ]
    assert max(apart) < 0.1  # which of them is nearer depends on the processor's kernels for one row and for many
    assert next(model.parameters()).dtype == torch.float32


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
    assert engine.figures.busy_seconds > 0


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
