"""verl's optimiser step over rows of our player is the one that plain PyTorch makes of them, on one rank and on two."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import scripted_server
from tests.training.verl_backend.conftest import PYTHON, ROOT
from tests.training.verl_backend.cpu_job import behave, cpu_job
from training.config.run import HardwareConfig
from training.memory.devices import device_named
from training.memory.table import Model, memory_of
from training.rewards.combining import group_statistics
from training.verl_backend.actor import Actor, Lesson
from training.verl_backend.folder import SETTINGS_NAME, JobFolder
from training.verl_backend.learner import ALWAYS, ON_PROCESSORS, make_folder

pytestmark = pytest.mark.verl
GROUPS, SIZE = 4, 4


async def _played(folder: JobFolder, tokenizer: Any, model: Any) -> list[list[Lesson]]:
    from training.policy.engine import SamplingParams
    from training.policy.transformers_engine import TransformersEngine
    from training.rollout.tokens import ChatTemplate

    template = ChatTemplate(tokenizer)
    params = SamplingParams(folder.config.rollout.temperature)
    engine = TransformersEngine(model, stop_ids=set(template.stop_ids), params=params, autocast=None)
    actor = Actor.opened(folder, engine, template)
    with engine.sampling():
        lessons = [
            list(await asyncio.gather(*(actor.play(1, group, index) for index in range(SIZE))))
            for group in range(GROUPS)
        ]
    actor.close()
    return lessons


@pytest.fixture(scope="module")
def played(
    trained_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[JobFolder, list[list[Lesson]]]]:
    """A job folder, and the rows of its first step; in one group a single rollout is left, in one two."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = tmp_path_factory.mktemp("one_step")
    with pytest.MonkeyPatch.context() as patch, scripted_server(behave) as url:
        patch.delenv("TILTYARD_OUTBOUND_ALLOW", raising=False)
        sizes = {"prompts_per_step": GROUPS, "num_generations": SIZE, "temperature": 1.4}
        job = cpu_job(
            base / "run",
            trained_folder,
            url,
            rollout=sizes,
            optim={"max_grad_norm": 1000, "weight_decay": 0.0},
            hardware={"devices": 2},
        )
        folder = make_folder(job, "cpu")
        model = AutoModelForCausalLM.from_pretrained(trained_folder, attn_implementation="eager").eval()
        lessons = asyncio.run(_played(folder, AutoTokenizer.from_pretrained(trained_folder), model))
    yield folder, lessons


def rewards_of(lessons: list[Lesson]) -> list[float | None]:
    return [lesson.facts["reward"] for lesson in lessons]


def test_the_rows_have_what_is_to_be_shown(played: tuple[JobFolder, list[list[Lesson]]]) -> None:
    """Excluded rollouts, a group with spread, environment tokens; and every advantage is ours to 1e-6."""
    _folder, lessons = played
    flat = [lesson for group in lessons for lesson in group]
    assert any(reward is None for group in lessons for reward in rewards_of(group))
    assert any(0 in lesson.mask and 1 in lesson.mask for lesson in flat)
    for group in lessons:
        expected = group_statistics(rewards_of(group)).advantages
        left = sum(value is not None for value in expected)
        wanted = [value if value is not None and left > 1 else 0.0 for value in expected]
        assert [lesson.advantage for lesson in group] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gradient_loss_and_weights_are_those_of_plain_pytorch(
    played: tuple[JobFolder, list[list[Lesson]]], tmp_path: Path, ranks: int
) -> None:
    folder, lessons = played
    rows = [asdict(lesson) for lesson in lone(lessons)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    found = stepped(folder.path / SETTINGS_NAME, tmp_path, ranks)
    assert found["sharded"] and found["ranks"] == ranks, "the parameters are FSDP2's DTensors"
    assert found["norm"] > 1e-3
    assert found["gradient"] < 1e-5 and found["weights"] < 3e-5 and found["logprobs"] < 1e-5
    assert found["loss"][0] == pytest.approx(found["loss"][1], abs=1e-6)
    table = memory_on(ranks, folder)
    assert table["weights"] == table["gradients"] == table["optimizer"] // 2
    for rank, sizes in enumerate(found["sizes"]):
        assert {name: sizes[name] for name in ("weights", "gradients")} == {
            name: table[name] for name in ("weights", "gradients")
        }, rank
        assert sizes["optimizer"] <= table["optimizer"], rank
    # Moments are of a device's own rows, so a last slice that is shorter has fewer.
    assert sum(sizes["optimizer"] for sizes in found["sizes"]) == memory_on(1, folder)["optimizer"]
    assert found["sizes"][0]["optimizer"] == table["optimizer"]


def memory_on(devices: int, folder: JobFolder) -> dict[str, int]:
    """The lines of the memory table of a job on so many devices."""
    config = folder.config.model_copy(update={"hardware": HardwareConfig(devices=devices, backend="verl")})
    model = Model.of(config.model.source)
    assert model is not None
    return {term.key: term.bytes for term in memory_of(config, model, device_named("cpu")).terms}


def test_an_adapter_stays_exact_above_a_base_of_bfloat16(starter_folder: Path, tmp_path: Path) -> None:
    """Its small updates would be lost in bfloat16's rounding. The base does not move."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    options = {"model": {"lora_rank": 4, "dtype": "bfloat16"}, "optim": {"learning_rate": 1e-6}}
    job = cpu_job(tmp_path / "run", starter_folder, "", **options, hardware={"devices": 2})
    folder = make_folder(job, "cpu")
    rows = [
        asdict(Lesson([5, 6], [7 + index, 9], [1, 1], [-3.0, -3.0], 1.0 - 2 * (index % 2), {})) for index in range(8)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    found = stepped(folder.path / SETTINGS_NAME, tmp_path, 2, "adapted_step")
    adapter = {name: weight for name, weight in found.items() if "lora_" in name}
    base = {name: weight for name, weight in found.items() if "lora_" not in name}
    assert {weight["type"] for weight in adapter.values()} == {"torch.float32"}
    assert {weight["type"] for weight in base.values()} == {"torch.bfloat16"}
    assert all(0 < weight["moved"] < 2e-6 for name, weight in adapter.items() if "lora_B" in name)
    assert {weight["moved"] for weight in base.values()} == {0.0}


def lone(lessons: list[list[Lesson]]) -> list[Lesson]:
    """The rows, with a group of which one rollout is left: as the actor makes it, whatever its reward was."""
    gone = Lesson([1], [1], [0], [0.0], 0.0, {})
    survivor = lessons[0][0]
    silent = Lesson(survivor.prompt_ids, survivor.completion_ids, [0] * len(survivor.mask), survivor.logprobs, 0.0, {})
    return [lesson for group in lessons for lesson in group] + [gone, silent, *[gone] * 6]


def stepped(settings: Path, folder: Path, ranks: int, module: str = "one_step") -> dict[str, Any]:
    """What the first of so many ranks says; each is a process of its own, and all have ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    common = kept | ON_PROCESSORS | ALWAYS | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    common |= {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    words = [str(PYTHON), "-m", f"tests.training.verl_backend.{module}", str(settings), str(folder / "rows.json")]
    empty = folder / "empty"
    empty.mkdir()
    started = [
        subprocess.Popen(
            words,
            cwd=empty,
            env=common | {"RANK": str(rank), "LOCAL_RANK": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=240)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * ranks, said[0][-3000:]
    (line,) = [line for line in said[0].splitlines() if line.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    print(found)
    return found
