"""EnvTuning's turn manager: what a reply costs, when a turn ends, and how it is scored.

A turn is one request of the user. In it the model has five attempts that are answered; an attempt is a message with
calls or one that cannot be read. A sixth is carried out but not shown, and the turn is scored and over. An answer ends
the turn at once. A turn without ground truth (a function or parameter is missing) wants an answer: any call there ends
it with 0 and is not executed.

``compat`` keeps one fault of upstream: there the ground truth of a turn in which the model called nothing is not
executed, so that all later turns are compared with a state that the entry never had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from envs.bfcl.calls import Call
from envs.bfcl.execution import Errors, Toolbox, contains, failed, same_state
from envs.bfcl.tasks import Task

# What BFCL's own checker says of an episode: the figure that papers print.
#
# The turn manager scores each turn as it ends; BFCL instead carries out everything that the model called, turn by turn
# together with the ground truth, and an entry is correct when every turn that has a ground truth passes. A call in a
# turn that wants none is carried out too: what it changed shows at the next turn.

ErrorType = Literal[
    "", "force_terminated", "empty_turn_model_response", "instance_state_mismatch", "execution_response_mismatch"
]
ERROR_TYPES: tuple[ErrorType, ...] = (
    "force_terminated",
    "empty_turn_model_response",
    "instance_state_mismatch",
    "execution_response_mismatch",
)
VALID, ERROR = "bfcl_valid", "bfcl_error/"
Step = Sequence[Call]


def error_of(task: Task, turns: Sequence[Sequence[Step]], *, forced: bool) -> ErrorType:
    """Why the entry is wrong, "" where it is right. ``turns`` holds the calls of each message of each turn.

    ``forced``: a turn was ended by its limit of attempts, or the episode before its last turn.
    """
    if forced or len(turns) != len(task.turns):
        return "force_terminated"
    model, truth = (Toolbox(task.configs, task.classes, long_context=task.long_context) for _ in range(2))
    seen: list[str] = []
    for steps, turn in zip(turns, task.turns, strict=True):
        called = [call for step in steps for call in step]
        seen += [result for step in steps for result in model.run(step)]
        wanted = truth.run(turn.truth)
        if not turn.truth:
            continue
        if not called:
            return "empty_turn_model_response"
        if not same_state(model, truth):
            return "instance_state_mismatch"
        if not contains(seen, wanted):
            return "execution_response_mismatch"
    return ""


def official_parts(error: ErrorType) -> dict[str, float]:
    """The verdict as reward parts: whether the entry is valid, and 1 for the error that it ended with."""
    return {VALID: float(not error)} | ({ERROR + error: 1.0} if error else {})


# --- Rewards --------------------------------------------------------------------------------------------------------
# Rewards from the codes of an episode: −1 call, −2 failed call, −3 unreadable reply, 0 or 1 a turn's score.

CALL, FAILED_CALL, UNREADABLE = -1, -2, -3


def reward_parts(codes: Sequence[int], turns: int) -> dict[str, float]:
    """Every part by name, each from 0 to 1.

    ``progress_reached`` is upstream's score: the mean over the turns that were reached, so that an episode cut after
    one good turn has 1.0. ``progress_all`` divides by all turns. Upstream's stage-1 score, from 0 to 2, is
    ``is_tool_call * (format_reward + tool_call_reward)``.
    """
    scores = [code for code in codes if code >= 0]
    called, failed = codes.count(CALL), codes.count(FAILED_CALL)
    passed = sum(scores)
    return {
        "progress_reached": passed / len(scores) if scores else 0.0,
        "progress_all": passed / turns,
        "format_reward": (len(codes) - codes.count(UNREADABLE)) / len(codes) if codes else 0.0,
        "tool_call_reward": called / (called + failed) if called + failed else 0.0,
        "is_tool_call": float(called + failed > 0),
        "task_success": float(passed == turns),
    }


MAX_ATTEMPTS = 5


class Action(NamedTuple):
    """The action of one message of the model. An empty list of calls is a call that asks for nothing."""

    kind: Literal["call", "answer", "error"]
    calls: list[Call] = []
    error: str | None = None

    @classmethod
    def of_error(cls, text: str) -> Action:
        """A message that cannot be read; ``text`` explains why to the model."""
        return cls("error", [], text)


class Round(NamedTuple):
    """The outcome of one message. Without ``results`` and ``error`` the turn is over."""

    code: int
    results: list[str] | None = None
    error: str | None = None
    warned: bool = False


@dataclass
class Episode:
    """One entry being played. ``turn`` is the index of the turn that waits for the model.

    ``asked`` holds what the model called in each message of each turn, carried out or not; ``forced`` says that a turn
    ran into its limit of attempts.
    """

    task: Task
    model: Toolbox
    truth: Toolbox
    compat: bool = False
    turn: int = 0
    attempts: int = 0
    called: bool = False
    solved_by_calls: bool = False
    results: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    asked: list[list[list[Call]]] = field(default_factory=lambda: [[]])
    forced: bool = False

    @classmethod
    def start(cls, task: Task, *, errors: Errors, compat: bool) -> Episode:
        """Fresh instances for model and ground truth. Raises what BFCL's classes do on a bad scenario."""
        model, truth = (
            Toolbox(task.configs, task.classes, long_context=task.long_context, errors=errors) for _ in range(2)
        )
        return cls(task, model, truth, compat)

    @property
    def over(self) -> bool:
        """Whether every turn was played."""
        return self.turn >= len(self.task.turns)

    def play(self, action: Action) -> Round:
        """Carry out one message and note its code."""
        if action.calls:
            self.asked[-1].append(action.calls)
        played = self._play(action)
        self.codes.append(played.code)
        return played

    def _play(self, action: Action) -> Round:
        wanted = self.task.turns[self.turn].truth
        if action.kind == "error":
            return self._attempt(Round(UNREADABLE, error=action.error))
        if not wanted:
            self._advance()
            answered = action.kind == "answer"
            return Round(int(answered), warned=not answered)
        if action.kind == "answer" or not action.calls:
            return Round(self._advance())
        results = self.model.run(action.calls)
        self.called = True
        self.results += results
        return self._attempt(Round(FAILED_CALL if failed(results) else CALL, results=results))

    def _attempt(self, played: Round) -> Round:
        """Count an attempt; after the last one its answer gives way to the end of the turn."""
        self.attempts += 1
        self.forced = self.forced or self.attempts > MAX_ATTEMPTS
        return played if self.attempts <= MAX_ATTEMPTS else Round(self._advance())

    def _advance(self) -> int:
        """Score the turn that ends and open the next one."""
        score = self._score(self.task.turns[self.turn].truth)
        self.turn += 1
        self.asked.append([])
        self.attempts = 0
        self.called = False
        self.solved_by_calls = self.solved_by_calls or bool(score)
        return score

    def _score(self, wanted: tuple[Call, ...]) -> int:
        if not wanted or (self.compat and not self.called):
            return 0
        results = self.truth.run(wanted)
        return int(self.called and same_state(self.model, self.truth) and contains(self.results, results))
