"""Credit to turns through the real trainers: the advantage of each token by value, and its gradient."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import by_length, parameters_of
from tests.training.algorithms.test_stages import tasks
from tests.training.helpers import TOOLS, job_config, observation, of_type, scripted_server
from training.algorithms.grpo import run_grpo, run_ppo, run_rloo
from training.algorithms.kept_rows import KeptRowsTrainer
from training.algorithms.trainers import ActorCriticTrainer, RlooTrainer
from training.algorithms.values import GroupTrainer
from training.errors import RewardFault
from training.rewards.base import Episode, Score

pytestmark = pytest.mark.usefixtures("no_health")

TURNS = {"credit": "turns"}
TOLERANCE = 2e-3


class Paying:
    """An environment that answers each turn with a reward so far: a few quarters drawn by the rollout's name. It ends
    after two or three turns."""

    def __init__(self, *, at_the_end: bool = False) -> None:
        self._at_the_end = at_the_end
        self._drawn: dict[int, random.Random] = {}
        self._paid: dict[int, float] = {}

    async def __call__(self, socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            self._drawn[id(socket)] = random.Random(frame["data"]["episode_id"])
            self._paid[id(socket)] = 0.0
            return observation(messages=[], tools=TOOLS)
        draw = self._drawn[id(socket)]
        self._paid[id(socket)] += draw.randrange(5) / 4 - 0.5
        over = turn == 3 or (turn == 2 and draw.random() < 0.3) or frame["data"].get("final", False)
        silent = self._at_the_end and not over
        messages = [] if over else [{"role": "user", "content": "Go on."}]
        return observation(messages=messages, done=over, reward=None if silent else self._paid[id(socket)])


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each sampling hands to the updates."""
    found: list[dict[str, Any]] = []
    for trainer in (GroupTrainer, RlooTrainer, ActorCriticTrainer):
        monkeypatch.setattr(trainer, "_generate_and_score_completions", remembering(trainer, found))
    return found


def remembering(trainer: Any, found: list[dict[str, Any]]) -> Any:
    original = trainer._generate_and_score_completions

    def remember(self: Any, inputs: Any) -> Any:
        output = original(self, inputs)
        found.append(dict(output))
        return output

    return remember


@pytest.fixture
def slopes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], torch.Tensor]]:
    """Each micro batch's rows, and the derivative of its loss by each log-probability."""
    found: list[tuple[dict[str, Any], torch.Tensor]] = []
    logprobs, loss = KeptRowsTrainer._get_per_token_logps_and_entropies, KeptRowsTrainer._compute_loss
    rows: list[dict[str, Any]] = []

    def remember(self: Any, model: Any, inputs: Any) -> Any:
        rows.append(dict(inputs))
        return loss(self, model, inputs)

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        values = logprobs(self, *args, **kwargs)
        if values[0].requires_grad:
            values[0].register_hook(lambda grad: found.append((rows[-1], grad.clone())))
        return values

    monkeypatch.setattr(KeptRowsTrainer, "_compute_loss", remember)
    monkeypatch.setattr(KeptRowsTrainer, "_get_per_token_logps_and_entropies", spy)
    return found


def turns_of(mask: torch.Tensor) -> list[list[int]]:
    """The columns of each turn: runs of own tokens, with the environment's between them."""
    found: list[list[int]] = []
    for column in mask.nonzero().flatten().tolist():
        if found and found[-1][-1] == column - 1:
            found[-1].append(column)
        else:
            found.append([column])
    return found


def rows_of(run_dir: Any, step: int = 1) -> list[list[Any]]:
    """The step's finished rollouts by group, in the order in which the trainer has them."""
    ends = {end.rollout: end for end in of_type(run_dir, "rollout_finished")}
    groups = sorted((g for g in of_type(run_dir, "group_scored") if g.step == step), key=lambda g: g.group)
    return [[ends[name] for name in group.rollouts] for group in groups]


def before(end: Any) -> list[float]:
    """What had been paid before each turn of a rollout."""
    rewards = [0.0 if value is None else value for value in end.turn_rewards]
    return rewards[: end.turns]


def by_hand(group: list[Any], scale: bool, batch_std: float | None = None) -> list[list[float] | None]:
    """A group's turns' advantages with weight and discount 1, from the journal's rewards alone."""
    known = [end.reward for end in group if end.reward is not None]
    mean, std = sum(known) / len(known), float(torch.tensor(known).std()) if len(known) > 1 else 0.0
    found: list[list[float] | None] = []
    for end in group:
        if end.reward is None:
            found.append(None)
            continue
        row = []
        for turn in range(end.turns):
            reached = [other for other in group if other.reward is not None and other.turns > turn]
            paid = [before(other)[turn] for other in reached]
            value, spread = end.reward - mean, std
            if len(paid) > 1 and max(paid) - min(paid) > 1e-6:
                left = torch.tensor([other.reward - before(other)[turn] for other in reached], dtype=torch.float64)
                value, spread = end.reward - before(end)[turn] - float(left.mean()), float(left.std())
            spread = spread if batch_std is None else batch_std
            row.append(value / (spread + 1e-4 if scale else 1.0))
        found.append(row)
    return found


def assert_laid(output: dict[str, Any], wanted: list[list[float] | None]) -> int:
    """Each own token of a turn has its advantage. Gives how many rows have turns of different ones."""
    mask, differing = output["completion_mask"] * output["tool_mask"], 0
    for row, values in enumerate(wanted):
        turns = turns_of(mask[row])
        if values is None:
            assert not turns and float(output["advantages"][row].abs().max()) == 0.0
            continue
        assert len(turns) == len(values)
        for columns, value in zip(turns, values, strict=True):
            assert output["advantages"][row, columns].tolist() == pytest.approx([value] * len(columns), abs=TOLERANCE)
        differing += max(values) - min(values) > 0.05
    return differing


def paid_job(make_job: MakeJob, folder: Any, url: str, name: str = "run", **groups: Any) -> Any:
    over = {"environment": {"url": url}, "model": {"source": str(folder)}, "run": {"max_steps": 1}} | groups
    return make_job(name, **over)


def some_fail(episode: Episode) -> Score:
    """By what they were paid and not by who comes first, so that the same ones fail every time."""
    value = episode.env_reward or 0.0
    if round(4 * value) % 4 == 1:
        raise RewardFault("no")
    return Score(parts={"task_success": value}, total=value)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_each_token_has_the_advantage_of_its_turn(
    make_job: MakeJob, trained_folder: Any, sampled: list[Any], slopes: list[Any], scale: str
) -> None:
    with scripted_server(Paying()) as url:
        options = {**TURNS, "scale_rewards": scale}
        job = paid_job(make_job, trained_folder, url, grpo=options)
        run_grpo(job, scorer=some_fail)
    groups = rows_of(job.run_dir)
    assert any(end.reward is None for group in groups for end in group)
    wanted = [row for group in groups for row in by_hand(group, scale == "group")]
    assert assert_laid(sampled[0], wanted) >= 2
    journalled = sorted(of_type(job.run_dir, "group_scored"), key=lambda g: g.group)
    for event, group in zip(journalled, groups, strict=True):
        for row, hand in zip(event.turn_advantages, by_hand(group, scale == "group"), strict=True):
            assert (row is None) == (hand is None) and (row is None or row == pytest.approx(hand, abs=TOLERANCE))
    inputs, slope = slopes[0]
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    assert torch.allclose(slope, -inputs["advantages"] / mask.sum() * mask, atol=1e-7)
    figures = of_type(job.run_dir, "metrics")[0].values
    assert figures["credit/silent_share"] == 0.0 and 0 < figures["credit/turn_share"] < 1
    values = [row for row in wanted if row is not None]
    flat = torch.tensor([value for row in values for value in row], dtype=torch.float64)
    within = sum(float(((t := torch.tensor(row, dtype=torch.float64)) - t.mean()).square().sum()) for row in values)
    whole = float((flat - flat.mean()).square().sum())
    assert figures["credit/turn_share"] == pytest.approx(within / whole, rel=1e-3)


def test_a_batch_s_spread_divides_all_groups(make_job: MakeJob, trained_folder: Any, sampled: list[Any]) -> None:
    with scripted_server(Paying()) as url:
        job = paid_job(make_job, trained_folder, url, grpo={**TURNS, "scale_rewards": "batch"})
        run_grpo(job)
    groups = rows_of(job.run_dir)
    std = float(torch.tensor([end.reward for group in groups for end in group]).std())
    wanted = [row for group in groups for row in by_hand(group, scale=True, batch_std=std)]
    assert assert_laid(sampled[0], wanted) >= 2


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_micro_batches_carry_a_turn_s_advantage(make_job: MakeJob, trained_folder: Any, kind: str) -> None:
    figures = []
    with scripted_server(Paying()) as url:
        tokens = {"max_tokens_per_micro_batch": 256}
        kinds = {"whole": {}, "rows": {"micro_batch_size": 1}, "tokens": tokens, "packed": {**tokens, "packing": True}}
        for name, optim in kinds.items():
            job = paid_job(make_job, trained_folder, url, name, kind=kind, optim=optim, **{kind: TURNS})
            (run_grpo if kind == "grpo" else run_rloo)(job)
            figures.append(of_type(job.run_dir, "metrics")[0].values)
    assert figures[0]["grad_norm"] > 1e-3
    for other in figures[1:]:
        assert other["grad_norm"] == pytest.approx(figures[0]["grad_norm"], rel=1e-3)
        assert other["credit/turn_share"] == figures[0]["credit/turn_share"] > 0


@pytest.mark.parametrize("kind", ["grpo", "rloo", "ppo"])
def test_an_environment_that_pays_at_the_end_alone_changes_nothing(
    make_job: MakeJob, trained_folder: Any, kind: str
) -> None:
    """The weights after two steps are the same to the last bit."""
    found = []
    with scripted_server(Paying(at_the_end=True)) as url:
        for credit in ("rollout", "turns"):
            over = {kind: {"credit": credit}, "run": {"max_steps": 2}, "kind": kind}
            job = paid_job(make_job, trained_folder, url, credit, **over)
            {"grpo": run_grpo, "rloo": run_rloo, "ppo": run_ppo}[kind](job)
            found.append(parameters_of(job.run_dir / "model"))
            figures = [event.values for event in of_type(job.run_dir, "metrics")]
            if credit == "turns":
                assert figures[0]["credit/silent_share"] == 1.0 and figures[0].get("credit/turn_share", 0.0) == 0.0
            else:
                assert not any(name.startswith("credit/") for name in figures[0])
            assert all(event.turn_advantages is None for event in of_type(job.run_dir, "group_scored"))
    start = parameters_of(trained_folder)
    assert any(not torch.equal(start[name], found[0][name]) for name in start)
    exact = kind != "rloo"  # its ratio is of tokens then, whose derivative is summed in another order
    assert all(
        torch.equal(found[0][name], found[1][name])
        if exact
        else torch.allclose(found[0][name], found[1][name], atol=1e-4)
        for name in start
    )


def test_a_turn_of_rloo_is_an_action(
    make_job: MakeJob, trained_folder: Any, sampled: list[Any], slopes: list[Any]
) -> None:
    """The derivative by each own token is -A of its turn over the rollouts that are kept."""
    with scripted_server(Paying()) as url:
        job = paid_job(make_job, trained_folder, url, kind="rloo", rloo=TURNS)
        run_rloo(job, scorer=some_fail)
    wanted: list[list[float] | None] = []
    for group in rows_of(job.run_dir):
        kept = [end for end in group if end.reward is not None]
        for end in group:
            row = None if end.reward is None else []
            for turn in range(end.turns if row is not None else 0):
                others = [o for o in kept if o is not end]
                value = end.reward - sum(o.reward for o in others) / len(others) if others else 0.0
                reached = [o for o in others if o.turns > turn]
                if any(abs(before(o)[turn] - before(end)[turn]) > 1e-6 for o in reached):
                    left = sum(o.reward - before(o)[turn] for o in reached) / len(reached)
                    value = end.reward - before(end)[turn] - left
                assert row is not None
                row.append(value)
            wanted.append(row)
    assert assert_laid(sampled[0], wanted) >= 2
    inputs, slope = slopes[0]
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    assert torch.allclose(slope, -inputs["advantages"] / len(mask) * mask, atol=1e-6)


def test_ppo_lays_rewards_where_they_were_paid(make_job: MakeJob, trained_folder: Any, sampled: list[Any]) -> None:
    """With γ = λ = 1 an advantage is what was still to come, less the mean of that which every value starts at."""
    options = {**TURNS, "whiten_advantages": False}
    with scripted_server(Paying()) as url:
        job = paid_job(make_job, trained_folder, url, kind="ppo", ppo=options)
        run_ppo(job, scorer=some_fail)
    to_come = [
        None if end.reward is None else [end.reward - paid for paid in before(end)]
        for group in rows_of(job.run_dir)
        for end in group
    ]
    own = sampled[0]["completion_mask"] * sampled[0]["tool_mask"]
    tokens = [
        value
        for values, mask in zip(to_come, own, strict=True)
        for value, columns in zip(values or [], turns_of(mask), strict=True)
        for _column in columns
    ]
    start = sum(tokens) / len(tokens)
    assert abs(start) > 0.01 and float((sampled[0]["values"] - start)[own.bool()].abs().max()) < 1e-6
    assert assert_laid(sampled[0], [values and [value - start for value in values] for values in to_come]) >= 2
    assert of_type(job.run_dir, "metrics")[0].values["credit/silent_share"] == 0.0


def test_what_is_masked_has_no_credit(make_job: MakeJob, trained_folder: Any, sampled: list[Any]) -> None:
    """Groups without an outcome that differs, and truncated rollouts, where those are not learned from."""
    with scripted_server(Paying()) as url:
        over = {"grpo": {**TURNS, "mask_truncated": True}, "rollout": {"max_turns": 2}}
        job = paid_job(make_job, trained_folder, url, **over)
        run_grpo(job)
        ends = [end for group in rows_of(job.run_dir) for end in group]
        cut = [end.status == "truncated" for end in ends]
        mask = sampled[0]["completion_mask"] * sampled[0]["tool_mask"]
        assert any(cut) and not all(cut)
        assert mask.any(-1).tolist() == [not each for each in cut]
        over = {"grpo": TURNS, "rewards": {"signal": "reward"}}
        flat = paid_job(make_job, trained_folder, url, "flat", **over)
        run_grpo(flat, scorer=lambda episode: Score(parts={"task_success": 0.0}, total=0.0))
    assert all(event.turn_advantages is None for event in of_type(flat.run_dir, "group_scored"))
    assert of_type(flat.run_dir, "metrics")[0].values["loss"] == 0.0


def test_stages_may_differ_in_it(make_job: MakeJob, trained_folder: Any) -> None:
    stages = [{"name": "first", "until_step": 1}, {"name": "second", "grpo": TURNS}]
    with scripted_server(Paying()) as url:
        job = paid_job(make_job, trained_folder, url, curriculum={"stages": stages}, run={"max_steps": 2})
        run_grpo(job)
    scored = of_type(job.run_dir, "group_scored")
    assert {event.step: event.turn_advantages is not None for event in scored} == {1: False, 2: True}
    figures = [event.values for event in of_type(job.run_dir, "metrics")]
    assert ["credit/turn_share" in values for values in figures] == [False, True]


def test_each_part_of_a_mix_has_its_credit(
    make_job: MakeJob, trained_folder: Any, tmp_path: Any, sampled: list[Any]
) -> None:
    """Groups of an environment that pays on the way next to groups of one that pays at the end."""
    with scripted_server(Paying()) as along, scripted_server(Paying(at_the_end=True)) as late:
        parts = [
            {"name": name, "weight": 1, "environment": {"url": url}, "data": {"train": tasks(tmp_path, name, (name,))}}
            for name, url in (("along", along), ("late", late))
        ]
        job = paid_job(make_job, trained_folder, along, grpo=TURNS, mix={"parts": parts})
        run_grpo(job)
    groups = rows_of(job.run_dir)
    assert assert_laid(sampled[0], [row for group in groups for row in by_hand(group, scale=True)]) >= 2
    parts_of = {(event.group, event.part) for event in of_type(job.run_dir, "rollout_started")}
    silent = {
        (event.group, "late" if event.turn_advantages is None else "along")
        for event in of_type(job.run_dir, "group_scored")
    }
    assert silent == parts_of and {part for _group, part in parts_of} == {"along", "late"}


def test_the_journal_has_the_rewards_of_turns(make_job: MakeJob, trained_folder: Any) -> None:
    """Whatever the credit, so that the lab can show what it would do."""
    with scripted_server(Paying()) as url:
        job = paid_job(make_job, trained_folder, url)
        run_grpo(job, scorer=by_length)
    for end in of_type(job.run_dir, "rollout_finished"):
        assert len(end.turn_rewards) == end.turns + 1 and end.turn_rewards[0] is None
        rewarded = [value for value in end.turn_rewards if value is not None]
        assert len(rewarded) == end.turns and rewarded[-1] == end.env_reward


PAID = {"rewards": {"components": [{"name": "paid", "function": "task_success", "weight": 0.5}]}}


@pytest.mark.parametrize(
    ("over", "option"),
    [
        ({"grpo": {**TURNS, "loss_type": "vespo"}, **PAID}, "grpo.loss_type"),
        ({"grpo": {**TURNS, "loss_type": "luspo", "importance_sampling": "sequence"}, **PAID}, "grpo.loss_type"),
        ({"grpo": {**TURNS, "importance_sampling": "sequence"}, **PAID}, "grpo.importance_sampling"),
        ({"grpo": {**TURNS, "off_policy_limit": 0.1}, **PAID}, "grpo.off_policy_limit"),
        ({"grpo": TURNS, "rewards": {**PAID["rewards"], "aggregation": "normalize_then_sum"}}, "rewards.aggregation"),
        ({"grpo": TURNS, "rewards": {"components": [{"name": "exact_match", "weight": 1}]}}, "grpo.credit"),
        ({"grpo": TURNS, "rewards": {"components": []}}, "grpo.credit"),
        ({"kind": "rloo", "rloo": TURNS, "rewards": {"components": []}}, "rloo.credit"),
        ({"kind": "ppo", "ppo": TURNS, "rewards": {"components": []}}, "ppo.credit"),
    ],
)
def test_what_has_one_word_for_a_rollout_is_refused(over: dict[str, Any], option: str) -> None:
    with pytest.raises(ValueError, match=rf"{option}: "):
        job_config(**over)


def test_what_turns_can_be_had_with() -> None:
    for loss in ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo"):
        assert job_config(grpo={**TURNS, "loss_type": loss}, **PAID).grpo.credit == "turns"
    assert job_config(grpo=TURNS, rewards={"components": [], "spec": "mine"}).grpo.credit == "turns"
    assert job_config(kind="sample", grpo=TURNS, rewards={"components": []}).grpo.credit == "turns"
    weightless = [{"name": "task_success", "weight": 0}, {"name": "exact_match", "weight": 1}]
    with pytest.raises(ValueError, match="credit whole rollouts"):
        job_config(grpo=TURNS, rewards={"components": weightless})
