"""Advantages, returns and value loss: an episode by hand, and the definitions of the papers by another route."""

from __future__ import annotations

import random

import pytest
import torch

from training.algorithms.values import (
    at_last_token,
    constant_value,
    estimate,
    explained_variance,
    value_loss,
    whitened,
)

MASK = [[1, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0]]
"""Own tokens; the environment speaks in between, and the last row is of a rollout that is excluded."""
VALUES = [[0.2, 0.4, 9.0, 0.1, 0.3, 9.0], [9.0, 9.0, -0.5, 0.5, 9.0, 1.0], [9.0] * 6]


def tensor(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def test_the_reward_is_at_the_last_own_token() -> None:
    found = at_last_token(torch.tensor([1.0, -2.0, 7.0]), torch.tensor(MASK))
    assert found.tolist() == [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, -2], [0] * 6]


def test_an_episode_by_hand() -> None:
    """γ 0.9, λ 0.8, so 0.72 from token to token; the reward is 1. Worked from the end:
    0.7 | 0.17 + 0.72 · 0.7 = 0.674 | −0.31 + 0.72 · 0.674 = 0.17528 | 0.16 + 0.72 · 0.17528 = 0.2862016.
    """
    rewards = at_last_token(torch.tensor([1.0, 0.0, 0.0]), torch.tensor(MASK))
    found = estimate(rewards, tensor(VALUES), torch.tensor(MASK), gamma=0.9, lam=0.8)
    assert found.advantages[0].tolist() == pytest.approx([0.2862016, 0.17528, 0, 0.674, 0.7, 0], abs=1e-6)
    assert found.returns[0].tolist() == pytest.approx([0.4862016, 0.57528, 0, 0.774, 1.0, 0], abs=1e-6)
    assert found.advantages[2].tolist() == found.returns[2].tolist() == [0.0] * 6


def by_steps(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """Schulman et al. 2016, eq. 11 to 16: the exponentially weighted mean of the n-step advantages, in full."""
    found, ahead = [], [*values, 0.0]
    for start in range(len(values)):
        left = len(values) - start
        steps = []
        for n in range(1, left + 1):
            gained = sum(gamma**k * rewards[start + k] for k in range(n))
            steps.append(gained + gamma**n * ahead[start + n] - values[start])
        weights = [(1 - lam) * lam ** (n - 1) for n in range(1, left)] + [lam ** (left - 1)]
        found.append(sum(weight * step for weight, step in zip(weights, steps, strict=True)))
    return found


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8), (1.0, 0.95), (0.99, 0.0)])
def test_it_is_the_weighted_mean_of_all_looks_ahead(gamma: float, lam: float) -> None:
    """Forty random rows with rewards at every token, as the pull of a reference gives them; environment tokens gone."""
    rng = random.Random(3)
    mask = [[rng.randrange(3) > 0 for _ in range(12)] for _ in range(40)]
    rewards, values = ([[rng.gauss(0, 1) for _ in range(12)] for _ in range(40)] for _ in range(2))
    found = estimate(tensor(rewards), tensor(values), torch.tensor(mask).int(), gamma=gamma, lam=lam)
    for row, marks in enumerate(mask):
        own = [token for token in range(12) if marks[token]]
        wanted = by_steps([rewards[row][t] for t in own], [values[row][t] for t in own], gamma, lam)
        assert found.advantages[row][own].tolist() == pytest.approx(wanted, abs=1e-6)
        others = [token for token in range(12) if not marks[token]]
        assert not found.advantages[row][others].any() and not found.returns[row][others].any()


def test_with_nothing_discounted_advantages_are_the_end_less_the_value() -> None:
    rewards = at_last_token(torch.tensor([1.0, 3.0, 0.0]), torch.tensor(MASK))
    found = estimate(rewards, tensor(VALUES), torch.tensor(MASK), gamma=1.0, lam=1.0)
    assert found.advantages[0].tolist() == pytest.approx([0.8, 0.6, 0, 0.9, 0.7, 0], abs=1e-6)
    assert found.advantages[1].tolist() == pytest.approx([0, 0, 3.5, 2.5, 0, 2.0], abs=1e-6)
    assert found.returns[1].tolist() == pytest.approx([0, 0, 3, 3, 0, 3], abs=1e-6)


THREE_AND_ONE = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
"""Own tokens of three rows; the last one is excluded, whatever its reward."""


@pytest.mark.parametrize(
    ("gamma", "lam", "wanted"),
    [
        (1.0, 1.0, 6 / 4),  # 2, 2, 2 and 0
        (0.5, 1.0, 3.5 / 4),  # 0.5, 1, 2 and 0
        (1.0, 0.0, 1.0),  # b, b, 2 and 0: 4 b = 2 b + 2
        (1.0, 0.5, 3.5 / 2.75),  # 0.5 + 0.75 b, 1 + 0.5 b, 2 and 0: 4 b = 3.5 + 1.25 b
        (0.5, 0.5, 2.625 / 3.4375),  # 0.125 + 0.3125 b, 0.5 + 0.25 b, 2 and 0: 4 b = 2.625 + 0.5625 b
    ],
)
def test_the_constant_that_is_the_mean_of_the_returns_it_gives(gamma: float, lam: float, wanted: float) -> None:
    rewards = at_last_token(torch.tensor([2.0, 0.0, 50.0]), THREE_AND_ONE)
    found = constant_value(rewards, THREE_AND_ONE, gamma=gamma, lam=lam)
    assert found == pytest.approx(wanted, abs=1e-6)
    given = estimate(rewards, torch.full((3, 4), found), THREE_AND_ONE, gamma=gamma, lam=lam)
    own = THREE_AND_ONE.bool()
    assert float(given.returns[own].mean()) == pytest.approx(wanted, abs=1e-6)
    assert float(given.advantages[own].mean()) == pytest.approx(0, abs=1e-6)


def test_a_pull_counts_in_that_constant_and_no_tokens_give_none() -> None:
    """Rewards at every token: 1 − 0.25, 0 − 0.25, and so on; with λ 1 returns are their sums from there on."""
    rewards = tensor([[-0.25, 7.0, -0.25, 1.75], [0.0, 0.0, -0.5, 0.0], [9.0] * 4])
    wanted = (1.25 + 1.5 + 1.75 - 0.5) / 4
    assert constant_value(rewards, THREE_AND_ONE, gamma=1.0, lam=1.0) == pytest.approx(wanted, abs=1e-6)
    assert constant_value(rewards, torch.zeros_like(THREE_AND_ONE), gamma=1.0, lam=1.0) is None


def test_whitening_is_of_own_tokens_alone() -> None:
    """1, 2, 3, 6 have the mean 3 and the standard deviation √(14/3)."""
    given = tensor([[1.0, 0.0, 2.0], [3.0, 6.0, 0.0]])
    mask = torch.tensor([[1, 0, 1], [1, 1, 0]])
    scale = (14 / 3) ** 0.5
    assert whitened(given, mask).flatten().tolist() == pytest.approx(
        [-2 / scale, 0, -1 / scale, 0, 3 / scale, 0], abs=1e-6
    )
    one = torch.tensor([[1, 0, 0], [0, 0, 0]])
    assert whitened(given, one).tolist() == given.tolist()


def test_the_value_loss_by_hand() -> None:
    """Reach 0.2. Token by token: inside; a move towards the return that is held back; a move away; not its own."""
    values, old, returns = (
        tensor([[0.5, 1.0, -1.0, 7.0]]),
        tensor([[0.4, 0.0, 0.0, 0.0]]),
        tensor([[1.0, 1.0, 1.0, 1.0]]),
    )
    mask = torch.tensor([[1, 1, 1, 0]])
    found = value_loss(values, old, returns, mask, 0.2)
    assert float(found.loss) == pytest.approx(0.5 * (0.25 + 0.64 + 4.0), abs=1e-6)
    assert float(found.clipped) == 1
    free = value_loss(values, old, returns, mask, 0.0)
    assert float(free.loss) == pytest.approx(0.5 * (0.25 + 0.0 + 4.0), abs=1e-6) and float(free.clipped) == 0


def test_what_values_explain() -> None:
    """Returns 0, 2 have variance 2; errors 0.5, −0.5 have 0.5. A constant explains nothing; equal returns need none."""
    mask = torch.tensor([[1, 1, 0]])
    returns = tensor([[0.0, 2.0, 50.0]])
    assert explained_variance(tensor([[-0.5, 2.5, 0.0]]), returns, mask) == pytest.approx(0.75)
    assert explained_variance(tensor([[5.0, 5.0, 0.0]]), returns, mask) == pytest.approx(0.0)
    assert explained_variance(tensor([[2.0, 0.0, 0.0]]), returns, mask) == pytest.approx(-3.0)
    assert explained_variance(tensor([[2.0, 0.0, 0.0]]), tensor([[1.0, 1.0, 9.0]]), mask) is None
    assert explained_variance(tensor([[2.0, 0.0, 0.0]]), returns, torch.tensor([[1, 0, 0]])) is None
