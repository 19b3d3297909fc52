"""The faults of confined code, one sentence each.

``text`` and ``line`` come out of the sandbox: they are shortened and cleaned, and are never more than text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from training.words import Sentence, _, sentence

MAX_TEXT = 300


SENTENCES = {
    "time": _("It ran longer than its limit of {text} s; it may loop."),
    "memory": _("It needed more than its limit of {text} MB of memory."),
    "file": _("It tried to use a file ({text})."),
    "socket": _("It tried to use the network ({text})."),
    "process": _("It tried to start or signal a process ({text})."),
    "thread": _("It tried to start a thread ({text})."),
    "native": _("It tried to leave Python ({text})."),
    "import": _("It may not do this: {text}. docs/custom-rewards.md lists the modules that it may import."),
    "refused": _("It tried something that the sandbox does not allow: {text}"),
    "recursion": _("Recursion is too deep."),
    "exit": _("It tried to end the program."),
    "ended": _("It ended its process ({text})."),
    "output": _("It wrote to the sandbox's own channel, or returned too much."),
    "raised": _("It raised {text}"),
    "syntax": _("This is not valid Python: {text}."),
    "no_function": _("It defines no function `reward(episode)`."),
    "type": _("It returned a value of type `{text}`, not a number."),
    "not_finite": _("It returned {text}, which is not a finite number."),
    "range": _("It returned {text}, which is outside its range."),
    "episode": _("The episode is too large for the sandbox (more than {text} MB)."),
    "unavailable": _("The sandbox cannot be set up on this machine, so the code is not run: {text}."),
    "busy": _("No sandbox became available within {text} s."),
}
"""Sentences by kind. A kind that is not here cannot be said, so nothing a worker sends becomes one."""


class Problem(NamedTuple):
    """One failure: what kind, the words that belong to it, and the line of the code where it was noticed."""

    kind: str
    text: str = ""
    line: int | None = None

    @property
    def sentence(self) -> Sentence:
        """The fault."""
        return sentence(SENTENCES[self.kind], text=self.text)

    def __str__(self) -> str:
        return self.sentence + (f" (line {self.line})" if self.line else "")


class SandboxProblem(Exception):
    """A call, or the start of a worker, failed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def problem_from(answer: dict[str, Any]) -> Problem:
    """What a worker says went wrong, as far as it can be believed: any of our kinds, a short text, a line."""
    kind, text, line = answer.get("kind"), answer.get("text"), answer.get("line")
    if not isinstance(kind, str) or kind not in SENTENCES:
        return Problem("output")
    words = clean(text) if isinstance(text, str) else ""
    return Problem(kind, words, line if type(line) is int and 0 < line < 1_000_000 else None)


def clean(text: str) -> str:
    """Text of a stranger without control characters, shortened."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * MAX_TEXT])
    return " ".join(shown.split())[:MAX_TEXT]
