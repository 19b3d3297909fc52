"""The error vocabulary: one flat set of codes, by the boundary where the failure happened.

One rule for runs: what a person or time can fix pauses the run (``pauses``); only what can never work fails it.

A bad rollout is data: an error with ``boundary`` in ENVIRONMENT, TOOL, REWARD or POLICY ends one rollout, is stored
with it, and never becomes a reward of 0. A bad run ends in a state with a code, a sentence and a next action.
``boundary()`` is the one place that turns a foreign exception into a ``TiltyardError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from training.words import Sentence


class Boundary(StrEnum):
    """Where a failure happened, which says who can fix it."""

    CONFIG = "config"
    DATA = "data"
    MODEL = "model"
    ENVIRONMENT = "environment"
    TOOL = "tool"
    REWARD = "reward"
    POLICY = "policy"
    STORAGE = "storage"
    LEASE = "lease"
    TRAINER = "trainer"


class ErrorInfo(BaseModel):
    """A failure as it is journalled, stored and shown. ``told`` is the message for translation, where it has values."""

    code: str
    boundary: Boundary
    message: str
    hint: str = ""
    told: Sentence | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = whole(self)
        if self.told is None:
            found.pop("told", None)
        return found


class TiltyardError(Exception):
    """Base of all our errors. ``code`` is stable and documented; ``hint`` is the next action for the reader."""

    code = "internal"
    boundary = Boundary.TRAINER
    hint = ""
    pauses = False
    """Whether a run that ends with it is paused, because a person or time can fix it, rather than failed."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint

    @property
    def info(self) -> ErrorInfo:
        """The error in its stored form."""
        text = self.message if isinstance(self.message, Sentence) and self.message.values else None
        return ErrorInfo(code=self.code, boundary=self.boundary, message=self.message, hint=self.hint, told=text)


class ConfigError(TiltyardError):
    """A job's options contradict each other or their limits.

    ``option`` is the dotted path of the option it belongs to, empty where there is none; ``sentence`` is what is wrong
    with it, and ``message`` both.
    """

    code, boundary = "config_invalid", Boundary.CONFIG

    def __init__(self, sentence: str, *, option: str = "", hint: str | None = None) -> None:
        super().__init__(f"{option}: {sentence}" if option else sentence, hint=hint)
        self.option, self.sentence = option, sentence


class DataError(TiltyardError):
    """A dataset cannot be read or a row has not the expected shape."""

    code, boundary = "data_unreadable", Boundary.DATA


class CannotContinue(DataError):
    """A recorded rollout cannot be continued from at this turn."""

    code = "cannot_continue"


class ModelError(TiltyardError):
    """A model folder is missing, incomplete or unsafe."""

    code, boundary = "model_unusable", Boundary.MODEL


class TemplateError(ModelError):
    """The chat template rewrites earlier turns, so token ids cannot be carried through."""

    code = "template_not_prefix_preserving"


class EnvironmentUnreachable(TiltyardError):
    """No connection, or it broke: the server is down, died, or refused."""

    code, boundary = "environment_unreachable", Boundary.ENVIRONMENT
    pauses = True


class EnvironmentRefused(EnvironmentUnreachable):
    """It answers, but not us: a wrong token, address or route. Waiting does not help, so nothing is held for it."""


class EnvironmentTimeout(TiltyardError):
    """The environment did not answer a stage within its time limit."""

    code, boundary = "environment_timeout", Boundary.ENVIRONMENT
    pauses = True


class EnvironmentProtocolError(TiltyardError):
    """The environment answered something that is not on the wire."""

    code, boundary = "environment_protocol", Boundary.ENVIRONMENT


class EnvironmentFull(TiltyardError):
    """The environment has no free session slot. ``slots`` is how many it said that it has."""

    code, boundary = "environment_full", Boundary.ENVIRONMENT
    pauses = True
    slots: int | None = None


class EnvironmentFault(TiltyardError):
    """The environment reported an error of its own for this episode."""

    code, boundary = "environment_fault", Boundary.ENVIRONMENT


class RewardFault(TiltyardError):
    """A reward component raised, or gave something that is not a finite number."""

    code, boundary = "reward_fault", Boundary.REWARD


class RewardTimeout(TiltyardError):
    """Scoring one rollout took longer than its time limit."""

    code, boundary = "reward_timeout", Boundary.REWARD


class ScorerDied(RewardFault):
    """The process that scored ended by itself: it was killed, or had too little memory. Another one takes its place."""

    code = "scorer_died"


class CustomRewardFault(RewardFault):
    """A team's own reward code failed, or tried what the sandbox does not allow."""

    code = "custom_reward_fault"


class PolicyFault(TiltyardError):
    """Sampling from the model failed."""

    code, boundary = "policy_fault", Boundary.POLICY


class RolloutEnded(TiltyardError):
    """A person ended this rollout while it was in flight."""

    code, boundary = "rollout_ended", Boundary.TRAINER


class ContextFull(TiltyardError):
    """A conversation is longer than what the model can hold."""

    code, boundary = "context_full", Boundary.POLICY


class EndpointFault(TiltyardError):
    """An OpenAI-compatible endpoint failed, or answered something that is no chat completion.

    ``status`` is the HTTP status that it answered with, ``wait_s`` the seconds that it asks to be left alone,
    ``instead`` what came in a completion's place: ``html``, ``empty`` or ``other``.
    """

    code, boundary = "endpoint_fault", Boundary.POLICY
    status: int | None = None
    wait_s: float | None = None
    instead: str = ""


class EndpointRefused(EndpointFault):
    """The endpoint refuses us: the key, the model or the address is wrong. Every further request would be refused."""

    code = "endpoint_refused"
    pauses = True


class EndpointKeyRefused(EndpointRefused):
    """The endpoint refuses the key, or asks for one."""

    code = "endpoint_key_refused"


class EndpointAway(EndpointFault):
    """The endpoint cannot be reached, or says that it is down: it may be back by itself."""

    code = "endpoint_away"
    pauses = True


class EndpointBusy(EndpointAway):
    """The endpoint answers that there are too many requests."""

    code = "endpoint_busy"


class EndpointTimeout(EndpointFault):
    """The endpoint did not answer within its time limit."""

    code = "endpoint_timeout"


class BudgetSpent(TiltyardError):
    """The tokens or the money that an evaluation may use are used up."""

    code, boundary = "budget_spent", Boundary.POLICY
    pauses = True


class TooManyFailures(TiltyardError):
    """Most rollouts of the last steps failed outside the policy: there is nothing left to learn from."""

    code, boundary = "too_many_failures", Boundary.ENVIRONMENT
    pauses = True


class StorageFull(TiltyardError):
    """The disk of the run directory is full."""

    code, boundary = "storage_full", Boundary.STORAGE
    pauses = True


class StorageLimit(ConfigError):
    """A project stores as much as it may, so no run of it is launched."""

    code, boundary = "storage_limit", Boundary.STORAGE


class StorageFailed(StorageFull):
    """The disk of the run directory takes nothing more, whatever room it has: it can only be read, or it fails."""

    code = "storage_failed"


class FilesAway(TiltyardError):
    """The store of files (``TILTYARD_FILES``) does not answer, or not in time."""

    code, boundary = "files_away", Boundary.STORAGE
    hint = "Check the store and the network between it and this host; the run continues by itself once it answers."
    pauses = True


class FilesRefused(TiltyardError):
    """The store of files refuses our access."""

    code, boundary = "files_refused", Boundary.STORAGE
    hint = "Check TILTYARD_FILES_KEY_ID, TILTYARD_FILES_SECRET and the rights on TILTYARD_FILES, then resume."
    pauses = True


class FilesFull(TiltyardError):
    """The store of files takes no more."""

    code, boundary = "files_full", Boundary.STORAGE
    hint = "Raise its quota or free room there, then resume."
    pauses = True


class FilesMissing(TiltyardError):
    """The store of files has no such object."""

    code, boundary = "files_missing", Boundary.STORAGE
    hint = "Run `manage.py publish_files` on the host with the site's data folder, then resume."
    pauses = True


class FilesTorn(TiltyardError):
    """An object in the store of files is not what was published."""

    code, boundary = "files_torn", Boundary.STORAGE
    hint = "Run `manage.py publish_files` on the host with the site's data folder, then resume."
    pauses = True


class SecretUnreadable(TiltyardError):
    """A key or token cannot be decrypted: it was stored with another secret key of the site."""

    code, boundary = "secret_unreadable", Boundary.STORAGE
    pauses = True


class NotFinite(TiltyardError):
    """Weights or values are NaN or infinite, or loss or gradient in several updates in a row; nothing moved weights."""

    code, boundary = "not_finite", Boundary.TRAINER
    pauses = True


class NoGradient(TiltyardError):
    """Loss and gradient were exactly 0 in many updates in a row: nothing is learned."""

    code, boundary = "no_gradient", Boundary.TRAINER
    pauses = True


class SamplerDisagrees(TiltyardError):
    """The sampler's log-probabilities differ from those of a training forward over the same ids."""

    code, boundary = "sampler_disagrees", Boundary.POLICY
    pauses = True


class MemoryShort(TiltyardError):
    """The device had too little memory for a model or a step; the weights are as they were before it."""

    code, boundary = "out_of_memory", Boundary.TRAINER
    pauses = True


class DeviceFault(TiltyardError):
    """The GPU or its driver failed, or another program keeps the GPU for itself."""

    code, boundary = "device_failed", Boundary.TRAINER
    pauses = True


class ClusterAway(TiltyardError):
    """The Ray cluster that a job of verl runs on does not answer, or not in time."""

    code, boundary = "cluster_unreachable", Boundary.TRAINER
    hint = "Check its head, and the network to it; the run continues by itself. Its job may be at work meanwhile."
    pauses = True


class ClusterShort(TiltyardError):
    """The Ray cluster does not have the devices that a job of verl asks for, or other jobs use them."""

    code, boundary = "cluster_short", Boundary.TRAINER
    hint = "Start the hosts that are missing, or wait until other jobs end; the run continues by itself."
    pauses = True


class ClusterRefused(TiltyardError):
    """The Ray cluster refuses the worker's token."""

    code, boundary = "cluster_refused", Boundary.TRAINER
    hint = "Set RAY_AUTH_MODE and RAY_AUTH_TOKEN where the worker is started, then resume."
    pauses = True


class SamplerDied(TiltyardError):
    """The server that samples did not start, is gone, hangs, or does not hold the weights that it was given.

    It ends the step without an update: the rollouts that ended before are those that end early, a biased batch.
    """

    code, boundary = "sampler_died", Boundary.POLICY
    pauses = True


class ProcessLost(TiltyardError):
    """A process or a host of a verl job was lost. It ends an attempt, and says nothing of the run."""

    code, boundary = "process_lost", Boundary.TRAINER


class DiedWithoutWord(Exception):
    """The process that trained for us has ended and left no last word. ``code`` is our own exit code for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = 128 - code if code < 0 else code or 1


class StopRequested(TiltyardError):
    """Someone asked the run to stop; not a failure."""

    code, boundary = "stopped", Boundary.TRAINER


@contextmanager
def boundary(error: type[TiltyardError], doing: str) -> Iterator[None]:
    """Attribute any error that escapes the block to ``error``'s boundary.

    Our own errors, cancellation and interpreter exits pass unchanged. ``doing`` completes "failed while …".
    """
    try:
        yield
    except (TiltyardError, asyncio.CancelledError):
        raise
    except Exception as exc:
        raise error(f"{type(exc).__name__} while {doing}: {exc}") from exc
