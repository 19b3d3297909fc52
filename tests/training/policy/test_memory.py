"""Memory: rows are admitted and parked by bytes, and running out of it costs time, not rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.policy.families import tiny_model
from tests.training.policy.test_transformers_engine import engine_for, play_all, sample_all
from training import machine
from training.errors import PolicyFault
from training.policy import memory
from training.policy.engine import Sample
from training.policy.memory import RowCost, is_out_of_memory, measure_row
from training.policy.transformers_engine import TransformersEngine

CPU = torch.device("cpu")


@pytest.fixture
def engine(model: Any) -> Iterator[TransformersEngine]:
    made = engine_for(model)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked at once begins at once, however busy the machine is."""
    monkeypatch.setattr("training.policy.transformers_engine.GATHER_S", 0.05)


class Watched:
    """How many rows each decode step had, and what the batch took then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from training.policy.attention import DecodeBatch

        self.rows: list[int] = []
        self.bytes: list[int] = []
        step = DecodeBatch.step

        def watching(batch: DecodeBatch, model: Any, ids: Any) -> None:
            step(batch, model, ids)
            self.rows.append(batch.rows)
            self.bytes.append(batch.bytes)

        monkeypatch.setattr(DecodeBatch, "step", watching)


def test_a_row_costs_what_its_keys_values_and_states_take() -> None:
    """4 layers × keys and values × 2 heads × 8 numbers; in bfloat16 half of it."""
    model = tiny_model("qwen3").eval()
    with torch.inference_mode():
        assert measure_row(model, CPU, None) == RowCost(column=4 * 2 * 2 * 8 * 4, state=0)
        with torch.autocast("cpu", torch.bfloat16):
            assert measure_row(model, CPU, torch.bfloat16) == RowCost(column=4 * 2 * 2 * 8 * 2, state=0)
        column, state = measure_row(tiny_model("qwen3_5_text").eval(), CPU, None)
    assert column == 2 * 2 * 2 * 8 * 4 and state > 2 * 4 * 8 * 8 * 4  # two of its layers keep states instead
    assert RowCost(column=10, state=5).of(rows=3, columns=7) == 3 * (7 * 10 + 5)


def test_rows_are_admitted_by_bytes_and_the_rest_waits(
    engine: TransformersEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rollout of a step was admitted at once, whatever it took."""
    watched = Watched(monkeypatch)
    with engine.sampling():
        free = asyncio.run(sample_all(engine))
    assert max(watched.rows) == 8
    with torch.inference_mode():
        cost = measure_row(model, CPU, None)
    budget = cost.of(rows=3, columns=25)  # the longest of the eight turns takes 6 + 19 columns
    monkeypatch.setattr("training.policy.transformers_engine.free_bytes", lambda device: 2 * budget)
    watched = Watched(monkeypatch)
    with engine.sampling():
        tight = asyncio.run(sample_all(engine))
    assert 2 <= max(watched.rows) <= 4 and max(watched.bytes) <= budget
    assert [sample.ids for sample in tight] == [sample.ids for sample in free]


def test_one_row_is_always_admitted(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.policy.transformers_engine.free_bytes", lambda device: 0)
    watched = Watched(monkeypatch)
    with engine.sampling():
        samples = asyncio.run(sample_all(engine))
    assert len(samples) == 8 and set(watched.rows) == {1}


def test_parked_rows_are_bounded_in_bytes(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of cells says nothing: a million cells are 60 to 515 GB of a model with 7 billion parameters."""
    most: list[int] = []
    park = engine._parking.park

    def watching(*args: Any) -> None:
        park(*args)
        most.append(engine._parking._bytes())

    monkeypatch.setattr(engine._parking, "park", watching)
    fresh, continued = play_all(engine, named=False), play_all(engine, named=True)
    free = max(most)
    most.clear()
    monkeypatch.setattr("training.policy.transformers_engine.free_bytes", lambda device: int(2.5 * free))
    tight = play_all(engine, named=True)
    assert max(most) <= int(0.2 * int(2.5 * free)) < free
    assert [[s.ids for s in one] for one in tight] == [[s.ids for s in one] for one in fresh]
    assert [[s.ids for s in one] for one in continued] == [[s.ids for s in one] for one in fresh]


@pytest.mark.parametrize("where", ["prefill", "decoding"])
def test_out_of_memory_continues_with_half_of_the_rows(
    where: str, engine: TransformersEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed every rollout of three steps and ended the run with "Fix the policy"."""
    with engine.sampling():
        expected = asyncio.run(eight(engine))
    forward, failed = type(model).forward, []

    def greedy(self: Any, *args: Any, **kwargs: Any) -> Any:
        rows, columns = kwargs["input_ids"].shape
        if rows > 3 and (columns > 1) == (where == "prefill"):
            failed.append(rows)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", greedy)
    with engine.sampling():
        samples = asyncio.run(eight(engine))
    assert failed == [8, 4] and engine.figures.memory_retries == 2
    assert [sample.ids for sample in samples] == [sample.ids for sample in expected]
    for one, other in zip(samples, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


async def eight(engine: TransformersEngine) -> list[Sample]:
    """Eight turns from different prompts of equal length."""
    turns = (engine.generate([5, 6, 7, 8 + n], max_tokens=20, seed=n) for n in range(8))
    return list(await asyncio.gather(*turns))


def test_a_row_that_does_not_fit_alone_is_a_policy_fault_that_names_memory(
    engine: TransformersEngine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = type(model).forward

    def greedy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs["attention_mask"].shape[1] > 20:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", greedy)

    async def both() -> list[Any]:
        long = engine.generate([5] * 30, max_tokens=4, seed=1)
        short = engine.generate([5] * 4, max_tokens=4, seed=1)
        return list(await asyncio.wait_for(asyncio.gather(long, short, return_exceptions=True), 20))

    with engine.sampling():
        fault, sample = asyncio.run(both())
    assert isinstance(fault, PolicyFault) and "Out of memory" in fault.message
    assert "rollout.max_completion_tokens" in fault.hint
    assert len(sample.ids) > 0


def test_only_what_says_so_is_out_of_memory() -> None:
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(torch.OutOfMemoryError())
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert is_out_of_memory(
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")
    )
    assert not is_out_of_memory(RuntimeError("The size of tensor a must match")) and not is_out_of_memory(OSError(28))


def test_a_containers_limit_counts_as_the_machines_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    assert machine._container_left(tmp_path) == 350_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._container_left(tmp_path) is None
    information = tmp_path / "meminfo"
    information.write_text("MemTotal: 9 kB\nMemAvailable:     2048 kB\n")
    assert machine._available(information) == 2048 * 1024
    assert machine._available(tmp_path / "absent") is None
    monkeypatch.setattr(machine, "_available", lambda: 500)
    monkeypatch.setattr(machine, "_container_left", lambda: 300)
    assert memory.free_bytes(CPU) == 300
    monkeypatch.setattr(machine, "_container_left", lambda: None)
    assert memory.free_bytes(CPU) == 500
    monkeypatch.setattr(machine, "_available", lambda: None)
    assert memory.free_bytes(CPU) == memory.UNKNOWN_BYTES
