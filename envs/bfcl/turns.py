"""EnvTuning's turn manager: what a reply costs, when a turn ends, and how it is scored.

A turn is one request of the user. In it the model has five attempts that are answered; an attempt is a message with
calls or one that cannot be read. A sixth is carried out but not shown, and the turn is scored and over. An answer ends
the turn at once. A turn without ground truth (a function or parameter is missing) wants an answer: any call there ends
it with 0 and is not executed.

``compat`` keeps one fault of upstream: there the ground truth of a turn in which the model called nothing is not
executed, so that all later turns are compared with a state that the entry never had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from envs.bfcl.calls import Call
from envs.bfcl.execution import Errors, Toolbox, contains, failed, same_state
from envs.bfcl.official import CALL, FAILED_CALL, UNREADABLE
from envs.bfcl.tasks import Task

MAX_ATTEMPTS = 5


class Action(NamedTuple):
    """What one message of the model asks for. An empty list of calls is a call that asks for nothing."""

    kind: Literal["call", "answer", "error"]
    calls: list[Call] = []
    error: str | None = None

    @classmethod
    def of_error(cls, text: str) -> Action:
        """A message that cannot be read; ``text`` tells the model why."""
        return cls("error", [], text)


class Round(NamedTuple):
    """What one message led to. Without ``results`` and ``error`` the turn is over."""

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
