"""One episode played by hand, as the server remembers it: what is saved is made from this, never from the browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from envs.wire import Message, Observation, ToolCall
from training.rewards.base import Episode
from training.rollout.turns import heard, opening


@dataclass
class Played:
    """An episode so far. ``task`` is what the environment was given; ``origin`` says where it came from. ``replayed``
    turns were taken from a recorded rollout; ``past`` names it, for what is saved."""

    id: str
    environment: str
    task: dict[str, Any]
    seed: int
    origin: str = ""
    messages: list[Message] = field(default_factory=list)
    prompt_length: int = 0
    tools: list[dict[str, Any]] | None = None
    known_tools: list[dict[str, Any]] | None = None
    turns: int = 0
    replayed: int = 0
    parse_errors: int = 0
    done: bool = False
    reward: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    past: dict[str, Any] = field(default_factory=dict)

    def begin(self, prompt: list[Message], tools: list[dict[str, Any]] | None, first: Observation) -> list[Message]:
        """Take the environment's first answer; returns the opening conversation."""
        self.messages = opening(prompt, first)
        self.prompt_length = len(self.messages)
        self.tools = self.known_tools = first.tools if first.tools is not None else tools
        self._take_answer(first)
        self._count_size(self.messages)
        return list(self.messages)

    def calls(self, wanted: list[tuple[str, dict[str, Any]]]) -> list[ToolCall]:
        """The calls of the next turn with ids, made as a rollout makes them."""
        return [
            ToolCall(id=f"call_{self.turns}_{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(wanted)
        ]

    def answered(self, said: Message, answer: Observation, parse_error: str | None = None) -> list[Message]:
        """Take one turn and its answer; returns the environment's messages."""
        added = heard(answer)
        self.turns += 1
        self.parse_errors += bool(parse_error or answer.info.get("parse_error"))
        self.messages += [said, *added]
        if answer.tools is not None:
            self.known_tools = answer.tools
        self._take_answer(answer)
        self._count_size([said, *added])
        return added

    def judged(self, answer: Observation) -> None:
        """Take in a verdict that no turn asked for: the episode was cut off."""
        if answer.reward is not None:
            self.reward = answer.reward
        self.parts.update(answer.reward_parts)

    @property
    def policy_turns(self) -> int:
        """Turns that the person played."""
        return self.turns - self.replayed

    def scored_as(self) -> Episode:
        """The episode as reward components see it; who plays by hand writes no tokens."""
        return Episode(
            messages=list(self.messages),
            prompt_length=self.prompt_length,
            row=self.task,
            env_reward=self.reward,
            env_parts=dict(self.parts),
            parse_errors=self.parse_errors,
            truncated=not self.done,
        )

    def _take_answer(self, answer: Observation) -> None:
        """Keep the answer's rewards, which are cumulative: they replace those of an earlier answer."""
        self.judged(answer)
        self.info, self.done = answer.info, answer.done

    def _count_size(self, messages: list[Message]) -> None:
        self.size += sum(len(message.model_dump_json()) for message in messages)
