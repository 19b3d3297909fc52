"""Turns sampled by a vLLM server: what it is asked, how weights reach it, and what its end means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.vllm_stub import Stub, serving
from training.errors import PolicyFault, SamplerDied, SamplerDisagrees
from training.policy.engine import Engine, Sample, Turn
from training.policy.vllm_engine import Draw, Handover, Server, VllmEngine
from training.policy.vllm_server import Loop, VllmClient

STOP = 2
TURN = "/v1/completions"


class Steps:
    """Weights whose version is of a step; nothing lies in their folder."""

    def __init__(self, *, adapter: bool) -> None:
        self.step, self.adapter, self.reports = 0, adapter, 0

    @property
    def version(self) -> str:
        return f"run-1-{self.step}"

    def write(self) -> Handover:
        return Handover(self.version, Path(f"/weights/{self.step}"), self.adapter)

    def taken(self) -> None:
        self.reports += 1


@contextmanager
def engine_over(*stubs: Stub, weights: Steps | None = None, limit_s: float = 20.0, **more: Any) -> Iterator[VllmEngine]:
    loop = Loop()
    with ExitStack() as stack:
        for stub in stubs:
            stack.enter_context(serving(stub))
        clients = [VllmClient(loop, stub.url, limit_s=limit_s, connections=8) for stub in stubs]
        more.setdefault("log", lambda text, level: None)
        servers = [Server(client, "policy") for client in clients]
        engine = VllmEngine(loop, servers, Draw(0.7, frozenset({STOP})), weights=weights, **more)
        try:
            yield engine
        finally:
            engine.close()
            loop.close()


def turn(engine: Engine, ids: list[int], seed: int = 5, *, max_tokens: int = 9, episode: str = "") -> Sample:
    return asyncio.run(engine.generate(ids, max_tokens=max_tokens, seed=seed, episode=episode))


def test_a_turn_goes_out_as_ids_and_comes_back_as_ids_with_log_probabilities() -> None:
    stub = Stub()
    with engine_over(stub) as engine, engine.sampling():
        sample = turn(engine, [7, 8, 9], seed=(1 << 55) + 3)
        cut = turn(engine, [7, 8, 9], max_tokens=2)
    _path, body = next(asked for asked in stub.asked if asked[0] == TURN)
    assert body == {
        "model": "policy",
        "prompt": [7, 8, 9],
        "max_tokens": 9,
        "seed": (1 << 55) + 3,
        "temperature": 0.7,
        "stop_token_ids": [STOP],
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
        # What a model's own generation_config.json would change otherwise.
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    assert len(sample.ids) == 4 and sample.ids[-1] == STOP and sample.logprobs == [-0.5] * 4 and sample.finished
    assert len(cut.ids) == 2 and not cut.finished
    assert engine.figures.turns == 2 and engine.figures.tokens == 6 and engine.figures.busy_seconds > 0


def test_a_connection_that_closes_as_it_is_used_costs_nothing() -> None:
    stub = Stub()
    with engine_over(stub) as engine:
        calm = turn(engine, [4, 5])
        stub.fail(TURN, "drop")
        again = turn(engine, [4, 5])
    assert again == calm
    assert stub.paths() == [TURN, TURN, "/health", TURN]


@pytest.mark.parametrize("fault", ["dead", "drops", "hangs", "unhealthy", "lost its adapter"])
def test_a_server_that_is_gone_ends_the_step(fault: str) -> None:
    stub = Stub()
    with engine_over(stub, weights=Steps(adapter=True), limit_s=0.5) as engine:
        engine.weights_changed()
        stub.asked.clear()
        stub.dead = fault == "dead"
        stub.healthy = fault != "unhealthy"
        stub.fail(TURN, *{"drops": ["drop"] * 2, "hangs": ["hang"], "unhealthy": [500]}.get(fault, []))
        if fault == "lost its adapter":
            stub.restart()
        with pytest.raises(SamplerDied) as found:
            turn(engine, [4, 5])
        with pytest.raises(SamplerDied):  # no server is asked any more
            turn(engine, [4, 5])
    assert found.value.pauses and found.value.code == "sampler_died" and "Resume plays it again" in found.value.hint
    if fault == "hangs":  # a second wait would be as long
        assert stub.paths() == [TURN] and "within 0.5 s" in found.value.message


@pytest.mark.parametrize("faults", [[400], [500, 500]])
def test_what_only_one_turn_is_refused_for_ends_only_that_one(faults: list[int]) -> None:
    stub = Stub()
    with engine_over(stub) as engine:
        stub.fail(TURN, *faults)
        with pytest.raises(PolicyFault, match=f"refuses the turn \\({faults[0]}\\): planted"):
            turn(engine, [4, 5])
        assert turn(engine, [4, 5]).ids


def answering(**changes: Any) -> Callable[[dict[str, Any], Path | None], tuple[list[int], list[float]]]:
    def sample(body: dict[str, Any], _weights: Path | None) -> tuple[list[int], list[float]]:
        body |= {"prompt": changes.get("prompt", body["prompt"])}
        return changes.get("ids", [11, STOP]), changes.get("logprobs", [-0.5, -0.5])

    return sample


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": [4, 5, 6]}, "another prompt"),
        ({"logprobs": [-0.5]}, "2 tokens with 1 log-probabilities"),
        ({"logprobs": [None, -0.5]}, "no token ids with log-probabilities"),
    ],
)
def test_an_answer_that_is_no_turn_after_the_prompt_is_not_believed(changes: Any, message: str) -> None:
    with engine_over(Stub(answering(**changes))) as engine, pytest.raises(SamplerDisagrees, match=message):
        turn(engine, [4, 5])


def test_adapters_are_swapped_under_names_of_their_own_and_versions_rise() -> None:
    stub, weights, renewed = Stub(), Steps(adapter=True), []
    with engine_over(stub, weights=weights, changed=lambda: renewed.append(weights.step)) as engine:
        for step in range(3):
            weights.step = step
            assert engine.weights_changed() == step + 1
            assert engine.weights_changed() == step + 1  # as an evaluation and the next step have the same weights
            assert stub.version == f"run-1-{step}" and list(stub.adapters) == [f"run-1-{step}"]
            assert stub.adapters[f"run-1-{step}"] == Path(f"/weights/{step}")
            with engine.sampling():
                turn(engine, [4, 5])
            assert stub.asked[-2][1]["model"] == f"run-1-{step}"
    assert weights.reports == 3 and renewed == [0, 0, 1, 1, 2, 2]
    loads = [path for path in stub.paths() if "lora" in path]
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    assert loads == [load, load, unload, load, unload]


def test_all_weights_are_read_from_disk_and_what_was_cached_is_forgotten() -> None:
    stub, weights = Stub(), Steps(adapter=False)
    with engine_over(stub, weights=weights) as engine:
        weights.step = 4
        engine.weights_changed()
    assert stub.weights == Path("/weights/4") and stub.version == "run-1-4"
    assert stub.paths() == ["/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/weight_info"]


@pytest.mark.parametrize("adapter", [False, True])
def test_one_that_shares_a_device_wakes_for_new_weights_and_for_turns(adapter: bool) -> None:
    stub, weights, room = Stub(), Steps(adapter=adapter), []
    stub.asleep = {"weights", "kv_cache"}
    with engine_over(stub, weights=weights, make_room=lambda: room.append(set(stub.asleep))) as engine:
        engine.rest()
        assert not stub.asked, "it sleeps already"
        assert engine.weights_changed() == 1
        turn(engine, [4])
        assert engine.weights_changed() == 1 and len(room) == 1, "awake, with weights that it has"
        engine.rest()
        engine.rest()
        assert stub.asleep and stub.level == (1 if adapter else 2)
        stub.asked.clear()
        with engine.sampling():  # the same weights: an adapter's are there, all weights are forgotten
            turn(engine, [4])
        whole = "/wake_up?tags=weights&tags=kv_cache"
        parts = ["/wake_up?tags=weights", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version"]
        again = [whole] if adapter else [*parts, "/weight_info", "/wake_up?tags=kv_cache"]
        assert stub.paths()[: len(again) + 1] == [*again, "/weight_info"]
        assert engine.version == (1 if adapter else 2) and room == [{"weights", "kv_cache"}] * 2
        assert engine.figures.synced_seconds > 0


def test_one_with_a_device_of_its_own_never_sleeps() -> None:
    stub = Stub()
    with engine_over(stub, weights=Steps(adapter=True)) as engine:
        engine.weights_changed()
        engine.rest()
        turn(engine, [4])
    assert not stub.asleep and not any(path.startswith("/sleep") for path in stub.paths())


@pytest.mark.parametrize("when", ["before", "within"])
def test_a_server_that_was_restarted_is_noticed_though_it_answers(when: str) -> None:
    """With all weights it serves those that it began with, under the same name (trial of 0.31)."""
    stub = Stub()
    with engine_over(stub, weights=Steps(adapter=False)) as engine:
        engine.weights_changed()
        if when == "before":
            stub.restart()
        with pytest.raises(SamplerDied, match="has the weights “default” and was given “run-1-0”"), engine.sampling():
            turn(engine, [4, 5])
            stub.restart()


@pytest.mark.parametrize(
    ("path", "fault", "message"),
    [
        ("/collective_rpc", 500, "planted"),
        ("/collective_rpc", "hang", "within 0.5 s"),
        ("/reset_prefix_cache", "drop", "could not be asked"),
        ("/update_weight_version", 404, "answers 404"),
    ],
)
def test_weights_that_no_server_takes_end_the_step(path: str, fault: Any, message: str) -> None:
    stub = Stub()
    stub.fail(path, fault)
    with engine_over(stub, weights=Steps(adapter=False), limit_s=0.5) as engine:
        with pytest.raises(SamplerDied, match=message):
            engine.weights_changed()
        assert engine.version == 0
        assert engine.weights_changed() == 1  # a resumed run, or a server that is there again


def test_an_episode_stays_with_its_server_and_new_ones_go_to_the_one_with_the_fewest() -> None:
    stubs = [Stub(), Stub(), Stub()]
    with engine_over(*stubs) as engine:
        for number in range(12):
            for length in (2, 4, 6):
                turn(engine, [9] * length, episode=f"episode {number}")
        seen = [{body["prompt"][0] for _path, body in stub.asked} and len(stub.asked) for stub in stubs]
        assert seen == [12, 12, 12]  # four episodes of three turns each
        engine.release("episode 0")
        before = [len(stub.asked) for stub in stubs]
        turn(engine, [9], episode="another")
        home = next(place for place, stub in enumerate(stubs) if len(stub.asked) > before[place])
        assert len(engine._servers[home].episodes) == 4


def test_one_of_several_servers_may_fail_and_comes_back_with_the_next_weights() -> None:
    first, second, lines = Stub(), Stub(), []
    weights = Steps(adapter=True)
    with engine_over(first, second, weights=weights, log=lambda text, level: lines.append((text, level))) as engine:
        engine.weights_changed()
        with engine.sampling():
            calm = [turn(engine, [4, number], episode=f"e{number}") for number in range(6)]
            first.dead = True
            assert [turn(engine, [4, number], episode=f"e{number}") for number in range(6)] == calm
        ((text, level),) = lines
        assert first.url in text and "go on without it" in text and level == "warning"
        asked = len(first.asked)
        turn(engine, [4, 99])
        assert len(first.asked) == asked  # it has left the ring
        first.dead, weights.step = False, 1
        engine.weights_changed()
        with engine.sampling():
            for number in range(6):
                turn(engine, [4, number], episode=f"new {number}")
        assert len([path for path, _ in first.asked[asked:] if path == TURN]) == 3
        first.dead = second.dead = True
        with pytest.raises(SamplerDied):
            turn(engine, [4, 5])


def test_many_turns_are_asked_for_at_once_and_one_that_is_cancelled_leaves_the_others() -> None:
    stub = Stub(delay_s=0.1)

    async def crowd(engine: Engine) -> list[Any]:
        tasks = [asyncio.create_task(engine.generate([5, n], max_tokens=4, seed=n)) for n in range(8)]
        await asyncio.sleep(0.02)
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with engine_over(stub) as engine:
        began = time.monotonic()
        found = asyncio.run(crowd(engine))
        assert time.monotonic() - began < 5.0
    assert isinstance(found[3], asyncio.CancelledError)
    assert all(isinstance(one, Sample) for place, one in enumerate(found) if place != 3)
    assert engine.figures.turns == 7


def test_a_handover_waits_for_the_turns_in_flight_and_new_ones_wait_for_it() -> None:
    stub, weights = Stub(), Steps(adapter=True)
    with engine_over(stub, weights=weights) as engine, ThreadPoolExecutor(3) as threads:
        engine.weights_changed()
        weights.step = 1
        stub.answers.clear()
        first = threads.submit(turn, engine, [4, 5])
        while TURN not in stub.paths():
            time.sleep(0.01)
        changed = threads.submit(engine.weights_changed)
        time.sleep(0.1)
        assert not changed.done()  # and the handover has not begun
        assert [path for path in stub.paths() if "load" in path] == ["/v1/load_lora_adapter"]
        second = threads.submit(turn, engine, [4, 5])
        stub.answers.set()
        assert first.result().version == 1 and changed.result() == 2 and second.result().version == 2
    asked = [body["model"] for path, body in stub.asked if path == TURN]
    assert asked == ["run-1-0", "run-1-1"]


def test_turns_that_prove_new_weights_are_sampled_before_others_and_alone() -> None:
    stub, weights = Stub(), Steps(adapter=True)
    with engine_over(stub, weights=weights) as engine, ThreadPoolExecutor(3) as threads:
        asked = [Turn([6, 7], 4, 0, "probe-0"), Turn([8], 4, 1, "probe-1")]
        engine.weights_changed()
        weights.step = 1
        stub.answers.clear()
        first = threads.submit(turn, engine, [4, 5])
        while TURN not in stub.paths():
            time.sleep(0.01)
        handed = threads.submit(engine.hand_over, asked)
        time.sleep(0.1)
        second = threads.submit(turn, engine, [4, 5, 6])
        assert not handed.done() and stub.paths().count(TURN) == 1
        stub.answers.set()
        assert first.result().version == 1
        assert [sample.version for sample in handed.result()] == [2, 2] and second.result().version == 2
        again = [turn(engine, ids, seed, max_tokens=4).ids for seed, ids in enumerate(([6, 7], [8]))]
        assert [sample.ids for sample in handed.result()] == again
    prompts = [body["prompt"] for path, body in stub.asked if path == TURN]
    assert prompts[0] == [4, 5] and sorted(prompts[1:3]) == [[6, 7], [8]] and prompts[3] == [4, 5, 6]


def test_weights_are_written_once_and_ahead_of_their_handover() -> None:
    stub, weights, written = Stub(), Steps(adapter=False), []
    write = weights.write

    def noted() -> Handover:
        written.append((weights.step, "/collective_rpc" in stub.paths()))
        return write()

    weights.write = noted  # type: ignore[method-assign]
    with engine_over(stub, weights=weights) as engine:
        engine.write_weights()
        engine.write_weights()
        assert written == [(0, False)] and engine.version == 0 and stub.version == "default"
        assert engine.hand_over([]) == [] and engine.version == 1 and stub.version == "run-1-0"
        assert engine.hand_over([Turn([4], 3, 0)])[0].version == 1  # the same weights are asked, and not sent again
        assert engine.weights_changed() == 1 and len(written) == 1 and weights.reports == 1
        weights.step = 1
        engine.write_weights()
        weights.step = 2  # newer ones still, before they were taken
        assert engine.weights_changed() == 2 and stub.version == "run-1-2"
    assert [step for step, _taken in written] == [0, 1, 2]


def test_a_server_that_is_another_after_it_was_asked_proves_nothing() -> None:
    stub, weights = Stub(), Steps(adapter=False)
    with engine_over(stub, weights=weights) as engine:
        sample = stub.sample

        def restarted(body: dict[str, Any], given: Any) -> tuple[list[int], list[float]]:
            stub.restart()
            return sample(body, given)

        stub.sample = restarted
        with pytest.raises(SamplerDied, match="has the weights “default” and was given “run-1-0”"):
            engine.hand_over([Turn([4], 3, 0)])


def test_a_handover_and_a_look_at_the_version_do_not_meet() -> None:
    """Between new weights and their version a server would seem to have been restarted."""
    stub, weights = Stub(), Steps(adapter=False)
    with engine_over(stub, weights=weights) as engine, ThreadPoolExecutor(2) as threads:
        engine.weights_changed()

        def look() -> None:
            for _ in range(40):
                with engine.sampling():
                    pass

        looking = threads.submit(look)
        for step in range(1, 20):
            weights.step = step
            engine.weights_changed()
        looking.result()
