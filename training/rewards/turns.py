"""Credit to turns: a turn's advantage is that of what it answers for: the reward less what was paid before the turn.

What is paid before a turn cannot depend on it, so it is only noise in the turn's advantage. This is reward to go
(Williams 1992; Baxter and Bartlett 2001), compared within the group at the same number of turn (turn-level advantages:
Zeng et al. 2025, *Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment*; discounted returns
of steps: Feng et al. 2025, *Group-in-Group Policy Optimization*). With the gains ``g_l`` that came with the answers to
turns 1 to K - 1 of a rollout of K turns:

    C_k = sum of g_l over l < k, + sum of (1 - discount^(l - k)) g_l over k < l < K
    M_k = R - weight C_k
    A_k = (M_k - mean M_k) / (std M_k + 1e-4)

Mean and spread of ``M_k`` are over the rollouts of the group that reached turn k. Where their ``C_k`` are equal there
is nothing to take off, and ``A_k`` is the rollout's. What comes with the last answer is the outcome, for which all
turns answer. Written in plain Python, so that the lab has it without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envs.wire import Message, ToolCall
from training.config import AdvantageScale, RewardComponent
from training.config.learning import PAID
from training.rewards.base import ERROR_PREFIXES, Episode
from training.rewards.combining import SCALE_EPSILON, ZERO_VARIANCE_TOLERANCE, mean_of, reward_std, term_of


class TurnCredit(NamedTuple):
    """The amount that is taken off a rollout's advantage at each of its turns."""

    less: list[float]

    def of(self, advantage: float) -> list[float]:
        """The advantage of each turn, (turns,)."""
        return [advantage - less for less in self.less]


def gains_of(
    rewards: Sequence[float | None],
    turns: int,
    components: Sequence[RewardComponent],
    parts: Mapping[str, float],
    step: int,
) -> list[float] | None:
    """What the answer to each turn but the last added to the reward, (turns - 1,).

    ``rewards`` are the environment's cumulative rewards at the reset and with each answer, ``None`` where it gave none:
    an answer without one leaves what is known as it was, and the next that has one is credited with the difference. A
    reward that the reset does not mention begins at 0. ``None`` where none of these answers had one: that is not 0.
    """
    if turns < 2:
        return [] if turns else None
    between = list(rewards[1:turns]) + [None] * (turns - len(rewards))
    if all(value is None for value in between):
        return None
    items = [item for item in components if item.registered == PAID and item.name in parts]
    first = rewards[0] if rewards[0] is not None else 0.0
    gains, known = [], _worth(first, items, parts, step)
    for value in between:
        now = known if value is None else _worth(value, items, parts, step)
        gains.append(now - known)
        known = now
    return gains


def _worth(value: float, items: Sequence[RewardComponent], parts: Mapping[str, float], step: int) -> float:
    """What the components that pay the environment's reward make of it, in units of the rollout's reward."""
    terms = [(item.weight, term_of(item, {**parts, item.name: value}, step)) for item in items]
    return sum(weight * term for weight, term in terms if term is not None)


def not_its_own(gains: Sequence[float], discount: float) -> list[float]:
    """``C_k`` of each turn of a rollout, (turns,): what was paid before it, and what it does not keep of later ones."""
    found = []
    for turn in range(len(gains) + 1):
        later = ((1 - discount ** (place - turn)) * gains[place] for place in range(turn + 1, len(gains)))
        found.append(sum(gains[:turn]) + sum(later))
    return found


def turn_credit(
    rewards: Sequence[float | None],
    advantages: Sequence[float | None],
    gains: Sequence[Sequence[float] | None],
    *,
    weight: float,
    discount: float,
    scale: AdvantageScale,
    batch_std: float | None = None,
) -> list[TurnCredit | None]:
    """The credit of a group's turns, from the rewards and advantages of its rollouts.

    ``None`` for rollouts without gains: they keep their advantage, and have no part in the others' means. So does a
    turn that fewer than two rollouts reached, and one before which all that reached it were paid the same.
    """
    taken = [None if row is None else [weight * value for value in not_its_own(row, discount)] for row in gains]
    found = [None if row is None else TurnCredit([0.0] * len(row)) for row in taken]
    for turn in range(max((len(row) for row in taken if row), default=0)):
        reached = [
            (credit, reward - row[turn], row[turn], advantage)
            for credit, reward, row, advantage in zip(found, rewards, taken, advantages, strict=True)
            if credit is not None and reward is not None and row is not None and advantage is not None
            if len(row) > turn
        ]
        paid = [before for _credit, _own, before, _advantage in reached]
        if len(paid) < 2 or max(paid) - min(paid) <= ZERO_VARIANCE_TOLERANCE:
            continue
        own = [value for _credit, value, _before, _advantage in reached]
        mean, divisor = mean_of(own), _divisor(own, scale, batch_std)
        for credit, value, _before, advantage in reached:
            credit.less[turn] = advantage - (0.0 if divisor is None else (value - mean) / divisor)
    return found


def _divisor(own: Sequence[float], scale: AdvantageScale, batch_std: float | None) -> float | None:
    """The divisor of the difference from the mean; ``None`` where the spread is not known."""
    if scale == "leave_one_out":
        return (len(own) - 1) / len(own)  # so that it is the difference from the mean of the others
    if scale == "none":
        return 1.0
    std = batch_std if scale == "batch" else reward_std(own)
    return None if std is None else std + SCALE_EPSILON


# --- Facts ----------------------------------------------------------------------------------------------------------
# What an episode shows about its tool calls: the facts that several components ask for.


class CallOutcome(NamedTuple):
    """One call of the policy. ``result`` is ``None`` when no tool message answered it, ``error`` when it worked."""

    call: ToolCall
    result: str | None
    error: str | None


class Turn(NamedTuple):
    """One turn of the policy and what came after it, up to the next one."""

    said: Message
    answers: list[Message]


def turns_of(episode: Episode) -> list[Turn]:
    """The policy's turns in order. What comes before the first of them answers no turn."""
    turns: list[Turn] = []
    for message in episode.messages[episode.prompt_length :]:
        if message.role == "assistant":
            turns.append(Turn(message, []))
        elif turns:
            turns[-1].answers.append(message)
    return turns


def outcomes_of(turn: Turn) -> list[CallOutcome]:
    """The calls of a turn with their answers.

    A tool message belongs to the open call with the same id, or to the first unanswered one when the message has no
    id. Messages that answer no call (such as a complaint about an unreadable one) are left out.
    """
    calls = [CallOutcome(call, None, None) for call in turn.said.tool_calls or []]
    for message in turn.answers:
        if message.role != "tool":
            continue
        for i, (call, result, _) in enumerate(calls):
            if result is None and message.tool_call_id in (None, "", call.id):
                calls[i] = CallOutcome(call, message.content, _error(message.content))
                break
    return calls


def call_outcomes(episode: Episode) -> list[CallOutcome]:
    """All calls in order with their answers."""
    return [outcome for turn in turns_of(episode) for outcome in outcomes_of(turn)]


def question(episode: Episode) -> str:
    """The user's question: the last user message of the prompt, else the first one of the episode, else ""."""
    prompt = [m.content for m in episode.messages[: episode.prompt_length] if m.role == "user"]
    if prompt:
        return prompt[-1]
    return next((m.content for m in episode.messages[episode.prompt_length :] if m.role == "user"), "")


def _error(text: str) -> str | None:
    """The error that a tool message reports, or ``None`` when the call worked."""
    text = text.strip()
    for prefix in ERROR_PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix).strip()
    return None
