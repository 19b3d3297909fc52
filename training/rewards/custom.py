"""A reward that a team writes in Python. It runs in a process that can only compute (``training/sandbox``).

Off unless the operator switches it on: a process without ``TILTYARD_CUSTOM_REWARDS`` refuses the whole run, in a
sentence. A failure of the code excludes the rollout: missing, never 0.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from envs.wire import Message
from training.config import RewardComponent
from training.errors import ConfigError, CustomRewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Component, Episode, Params
from training.rewards.turns import outcomes_of, question, turns_of
from training.sandbox.modules import ALLOWED
from training.sandbox.problems import Problem, SandboxProblem
from training.sandbox.process import Answer, Limits, Worker, pool
from training.words import OptionError, Sentence, _, sentence

# What custom code sees of an episode: plain data, the same as JSON. docs/custom-rewards.md describes each field.


def plain_episode(episode: Episode) -> dict[str, Any]:
    """The episode as dictionaries, lists, texts and numbers."""
    return {
        "messages": [_message(message) for message in episode.messages],
        "prompt_length": episode.prompt_length,
        "question": question(episode),
        "final_answer": episode.final_answer,
        "calls": _calls(episode),
        "row": episode.row,
        "env_reward": episode.env_reward,
        "env_parts": episode.env_parts,
        "parse_errors": episode.parse_errors,
        "truncated": episode.truncated,
        "tokens": episode.tokens,
    }


def _message(message: Message) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls or []]
    return {"role": message.role, "content": message.content, "tool_calls": calls, "tool_call_id": message.tool_call_id}


def _calls(episode: Episode) -> list[dict[str, Any]]:
    return [
        {
            "turn": number,
            "name": outcome.call.name,
            "arguments": outcome.call.arguments,
            "result": outcome.result,
            "error": outcome.error,
        }
        for number, turn in enumerate(turns_of(episode))
        for outcome in outcomes_of(turn)
    ]


# --- Params ---------------------------------------------------------------------------------------------------------
# Parameters of custom code. The hash is always stored next to the code, and a wrong one is refused.

MAX_CODE_CHARS = 20_000
MODULES = [name for name in ALLOWED if name[0] != "_"]
"""What custom code may import, by the names that a page lists."""


def code_hash(code: str) -> str:
    """The name of a piece of code: its SHA-256."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


class CustomParams(Params):
    """Parameters of ``custom_python``."""

    code: str = Field(
        "",
        title=_("Code"),
        description=_("Python that defines reward(episode) and returns a number; it runs in a sandbox."),
        max_length=MAX_CODE_CHARS,
        json_schema_extra={"widget": "code"},
    )
    sha256: str = Field(
        "",
        title=_("SHA-256 of the code"),
        description=_("Filled in from the code; another value is refused."),
        max_length=64,
        pattern=r"^([0-9a-f]{64})?$",
        json_schema_extra={"widget": "code"},
    )
    low: float | None = Field(
        None, title=_("Lowest value"), description=_("A lower value is an error; empty allows any."), ge=-1e6, le=1e6
    )
    high: float | None = Field(
        None, title=_("Highest value"), description=_("A higher value is an error; empty allows any."), ge=-1e6, le=1e6
    )
    limit_s: float = Field(
        2.0,
        title=_("Time limit"),
        description=_("Longest computation for one rollout, in seconds. Keep it below the scoring limit."),
        gt=0,
        le=60,
    )

    @model_validator(mode="after")
    def _name_the_code(self) -> CustomParams:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise OptionError("low", sentence(_("the lowest value is above the highest one")))
        found = code_hash(self.code) if self.code else ""
        if self.sha256 and self.sha256 != found:
            raise ValueError(sentence(_("sha256: the code does not match this hash")))
        self.sha256 = found
        return self

    def problems(self) -> list[str]:
        """Code is needed."""
        return [] if self.code.strip() else [sentence(_("There is no code."))]


CUSTOM = "custom_python"
SWITCH_VARIABLE = "TILTYARD_CUSTOM_REWARDS"
LATE = frozenset({"time", "busy"})


def switched_on() -> bool:
    """Whether this process may run custom code: its operator, or its supervisor, said so."""
    return os.environ.get(SWITCH_VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"}


def refuse_custom(components: Sequence[RewardComponent]) -> None:
    """Raise ``ConfigError`` when a list has custom code and this process may not run any."""
    names = [part.name for part in components if part.registered == CUSTOM]
    if names and not switched_on():
        raise ConfigError(
            f"`{names[0]}` is custom Python, and custom rewards are switched off here.",
            option="rewards.components",
            hint=f"An administrator switches them on ({SWITCH_VARIABLE}, docs/custom-rewards.md).",
        )


def custom_python(episode: Episode, params: CustomParams) -> float:
    """The number that the code returns. Raises typed reward errors that name what happened."""
    if not switched_on():
        raise CustomRewardFault(_("Custom rewards are switched off here."))
    try:
        answer = pool.call(params.code, Limits(seconds=params.limit_s), plain_episode(episode))
        return in_range(answer, params).value
    except SandboxProblem as exc:
        raise fault(exc.problem) from exc


def in_range(answer: Answer, params: CustomParams) -> Answer:
    """The answer, if it is in the range that its author promised. Raises ``SandboxProblem``."""
    low, high = params.low, params.high
    if (low is not None and answer.value < low) or (high is not None and answer.value > high):
        raise SandboxProblem(Problem("range", f"{answer.value:g}"))
    return answer


class Tried(NamedTuple):
    """What code returned for an episode, or what is wrong with it and in which line; ``printed`` is what it printed."""

    value: float | None
    problem: Sentence | None = None
    line: int | None = None
    printed: str = ""


class Runner:
    """Tries one piece of code on one episode after another, in a sandbox that no other code uses; where the code ended
    it, the next episode has a new one. Close it in the end."""

    def __init__(self, params: CustomParams) -> None:
        self._params = params
        self._worker: Worker | None = None

    def try_on(self, episode: Episode) -> Tried:
        """What the code returns for an episode, as far as it keeps its limits. Raises nothing that the code causes."""
        try:
            if self._worker is None or not self._worker.alive:
                self.close()
                self._worker = Worker(self._params.code, Limits(seconds=self._params.limit_s))
            answer = in_range(self._worker.call(plain_episode(episode)), self._params)
        except SandboxProblem as exc:
            return Tried(None, exc.problem.sentence, exc.problem.line)
        return Tried(answer.value, printed=answer.printed)

    def close(self) -> None:
        """End its sandbox."""
        if self._worker is not None:
            self._worker.kill()


def fault(problem: Problem) -> TiltyardError:
    """A sandbox's problem in the words of rewards."""
    kind = RewardTimeout if problem.kind in LATE else CustomRewardFault
    words = problem.sentence
    if problem.line:
        words = sentence(_("{problem} (line {line})"), problem=words, line=problem.line)
    failed = sentence(_("The custom reward failed. {problem}"), problem=words)
    return kind(failed, hint=_("Fix its code; the page of the reward tests it."))


CUSTOM_FAMILY = (
    Component(
        CUSTOM,
        _("Custom Python"),
        _("A number that your own code computes from the finished rollout, in a sandbox."),
        custom_python,
        CustomParams,
        low=float("-inf"),
        high=float("inf"),
        source="Tiltyard; docs/custom-rewards.md",
        formula="what the code returns; missing when it fails, takes too long or leaves its range",
        warning=_("This is code execution. It is off until the operator and an administrator enable it."),
        outside=True,
    ),
)
