"""What is kept of each token is what the trainer saw: computed once more from the model and the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.algorithms.test_ppo import every_third_fails
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo, run_ppo
from training.algorithms.job import Job
from training.algorithms.token_values import TokenRecord, speller
from training.rewards.combining import GroupStatistics
from training.rollout.trajectory import Rollout, StepRollouts, Trajectory
from training.token_file import LEARNED, SAMPLED, SEEN, TokenValues, read_rollout, spelled

pytestmark = pytest.mark.usefixtures("no_health")

GROUPS: dict[str, Any] = {
    "rewards": {"components": COMPONENTS},
    "optim": {"mini_batch_size": 4, "micro_batch_size": 2, "learning_rate": 1e-3},
    "grpo": {"num_iterations": 2, "beta": 0.0},
    "run": {"max_steps": 4, "threads": 1},
}


def kept(job: Job, step: int) -> dict[tuple[int, int], TokenValues]:
    """The values of a step by group and index."""
    size = job.config.rollout.num_generations
    places = [(g, i) for g in range(job.config.rollouts_per_step // size) for i in range(size)]
    found = {place: read_rollout(job.run_dir, step, *place) for place in places}
    return {place: values for place, values in found.items() if values is not None}


def bytes_of(text: str, whole: bool) -> bytes:
    return text.encode() if whole else bytes.fromhex(text)


def test_each_token_has_the_values_of_its_first_update(make_job: MakeJob, starter_folder: Path) -> None:
    """Two mini batches, two epochs: four updates of a sampling, whose rows TRL shuffles."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with scripted_server() as url:
        job = make_job(environment={"url": url}, **GROUPS)
        run_grpo(job, scorer=by_length)
    assert sorted(path.name for path in (job.run_dir / "tokens").glob("step-*")) == ["step-000001.zip"]
    values, size = kept(job, 1), job.config.rollout.num_generations
    started = {event.rollout: event for event in of_type(job.run_dir, "rollout_started")}
    advantages = {}
    for group in of_type(job.run_dir, "group_scored"):
        for name, advantage in zip(group.rollouts, group.advantages, strict=True):
            advantages[started[name].group, started[name].index] = advantage
    assert len(values) == job.config.rollouts_per_step == len(advantages) and size > 1
    ended = {e.rollout: e.tokens for e in of_type(job.run_dir, "rollout_finished")}
    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    columns = spelled(job.run_dir)
    tokenizer = AutoTokenizer.from_pretrained(starter_folder)
    exact = 0
    for name, event in started.items():
        found = values[event.group, event.index]
        own = (found.flags & SAMPLED).astype(bool)
        assert own.sum() == ended[name]
        assert found.advantage == pytest.approx(advantages[event.group, event.index], abs=2e-5)
        spelling = b"".join(bytes_of(*columns[number]) for number in found.ids.tolist())
        assert spelling.decode(errors="replace") == tokenizer.decode(found.ids.tolist(), skip_special_tokens=False)
        ids = torch.tensor([*found.prompt.tolist(), *found.ids.tolist()])[None]
        with torch.no_grad():
            logits = model(input_ids=ids.long()).logits[0, len(found.prompt) - 1 : -1].float()
        logps = logits.log_softmax(-1)
        before = logps.gather(-1, torch.tensor(found.ids.astype(np.int64))[:, None])[:, 0].numpy()
        entropy = -(logps.exp() * logps).sum(-1).numpy()
        # The sampler's: of the weights that were there before the first update. The codes are a few hundredths apart.
        assert found.logprob[own] == pytest.approx(before[own], abs=0.09)
        seen = (found.flags & SEEN).astype(bool)
        assert (seen == own).all() and ((found.flags & LEARNED) > 0).tolist() == own.tolist()
        assert not found.logprob[~own].any() and (found.ratio[~own] == 1).all()
        if np.abs(found.ratio[own] - 1).max() < 0.02:  # the first mini batch, before anything was learned
            assert found.entropy[own] == pytest.approx(entropy[own], abs=0.09)
            exact += 1
    assert exact >= 4


def test_an_excluded_rollout_and_a_token_s_own_advantage(make_job: MakeJob) -> None:
    groups = {name: GROUPS[name] for name in ("rewards", "optim", "run")}
    with scripted_server() as url:
        job = make_job(kind="ppo", environment={"url": url}, ppo={"lam": 0.5}, **groups)
        run_ppo(job, scorer=every_third_fails())
    excluded = {e.rollout for e in of_type(job.run_dir, "rollout_finished") if e.status == "excluded"}
    assert excluded
    many = 0
    for event in of_type(job.run_dir, "rollout_started"):
        if event.step != 1:
            continue
        found = read_rollout(job.run_dir, 1, event.group, event.index)
        assert found is not None
        own = (found.flags & SAMPLED).astype(bool)
        if event.rollout in excluded:
            assert found.advantage is None and not (found.flags & (LEARNED | SEEN)).any() and own.any()
        else:
            assert isinstance(found.advantage, np.ndarray) and len(found.advantage) == len(found.ids)
            many += len(set(found.advantage[own].tolist())) > 1
    assert many >= 4


def test_a_record_stays_within_its_limit(tmp_path: Path) -> None:
    """Of a run that continues, what is there already counts."""

    def play(record: TokenRecord, first: int) -> list[str]:
        for step in range(first, first + 4):
            record.sampled(step, a_sampling())
            record.write()
        return sorted(path.stem for path in (tmp_path / "tokens").glob("step-*"))

    names = play(TokenRecord(tmp_path, 10**6, lambda number: b"x"), 1)
    assert names == [f"step-00000{step}" for step in (1, 2, 3, 4)]
    size = (tmp_path / "tokens" / "step-000001.zip").stat().st_size
    names = play(TokenRecord(tmp_path, 3 * size + 1, lambda number: b"x"), 5)
    assert names == [f"step-00000{step}" for step in (6, 7, 8)]
    values = read_rollout(tmp_path, 8, 0, 1)
    assert values is not None and values.advantage is None and values.flags.tolist() == [SAMPLED, SAMPLED, 0]


def a_sampling() -> StepRollouts:
    """One group of two rollouts; no trainer has seen them."""
    trajectory = Trajectory(prompt_ids=[1, 2], completion_ids=[3, 4, 5], mask=[1, 1, 0], logprobs=[-0.5, -1.0, 0.0])
    rollouts = [Rollout(f"1/0/{index}", 0, trajectory, {"a": 1.0}, 1.0) for index in range(2)]
    return StepRollouts(rollouts, [GroupStatistics([0.0, 0.0], 1.0, 0.0, True)])


def test_off_is_off(make_job: MakeJob) -> None:
    with scripted_server() as url:
        run = {"max_steps": 1, "threads": 1, "keep_tokens_mib": 0}
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, run=run)
        run_grpo(job, scorer=by_length)
    assert not (job.run_dir / "tokens").exists()


def test_a_piece_of_a_character_spells_its_bytes(starter_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(starter_folder)
    spell = speller(tokenizer)
    text = 'a 天气 €\n<|im_end|><tool_call>{"x": 12}</tool_call>'
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert b"".join(spell(number) for number in ids) == text.encode()
    assert any(spell(number).decode(errors="replace") == "\ufffd" for number in ids)
