"""Requests to a scoring process, one JSON line a job, and its replies: a line for each component of each episode."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, TypeAdapter

from training.config import RewardComponent
from training.rewards.base import Episode, Span
from training.words import Sentence

READY = b"ready"


class Asked(BaseModel):
    """Components asked about one episode, each by itself: for their values, and for at most ``spans`` pieces of text
    that these come from. ``known`` are those whose values are not needed."""

    episode: Episode
    components: list[RewardComponent]
    known: list[str] = []
    values: bool = True
    spans: int = 0
    weighed: bool = False
    """Whether a value is missing too where its own weight alone takes it out of a reward's bounds."""
    sandbox: bool = False
    """Whether a team's own code may be asked as well, in its sandbox."""


class Job(BaseModel):
    """Everything that one person asks at once, and the seconds of processor time that it may take."""

    asked: list[Asked]
    cpu_s: float


class Said(BaseModel):
    """What a component says of an episode. Without a ``value`` that was asked for, ``why`` and the error's ``code`` say
    what happened."""

    value: float | None = None
    why: Sentence | None = None
    code: str = ""
    spans: list[Span] = []


_JOB, _SAID = TypeAdapter(Job), TypeAdapter(Said)


def job_line(job: Job) -> bytes:
    """A job as a line. Raises ``ValueError`` or ``RecursionError`` for rows or arguments that are nested too deeply.

    Python's own JSON: rows of datasets may hold NaN, and pydantic goes less deep than they do.
    """
    return _json_line({"cpu_s": job.cpu_s, "asked": [_asked_data(asked) for asked in job.asked]})


def _asked_data(asked: Asked) -> dict[str, Any]:
    messages = [message.model_dump(mode="json") for message in asked.episode.messages]
    whole = asked.model_dump(mode="json", exclude={"episode"})
    return {**whole, "episode": {**vars(asked.episode), "messages": messages}}


def said_line(reply: Said) -> bytes:
    """An answer as a line."""
    return _json_line(reply.model_dump(mode="json"))


def job_of(line: bytes) -> Job:
    """The job of a line."""
    return _JOB.validate_python(json.loads(line))


def said_of(line: bytes) -> Said:
    """The answer of a line. Raises ``ValueError``."""
    return _SAID.validate_python(json.loads(line))


def _json_line(plain: dict[str, Any]) -> bytes:
    return (json.dumps(plain) + "\n").encode()
