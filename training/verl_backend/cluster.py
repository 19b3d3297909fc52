"""A job on a Ray cluster that runs already: submitted under a name of our own, waited for, and stopped.

1. Its name follows from the run's folder, so that an attempt finds and stops what the ones before it may have left.
2. Our code goes with it. What opens environments and judges does not: all who see the cluster's jobs would see it.
   It lies in a file of the job folder, which every process of the job reads, and is removed when the job is over.
3. A cluster that does not answer, or not within ``ANSWER_S``, is asked again for a while (``Hold``): the job may
   well be at work. Then the run pauses. A head that was restarted knows no job; then this one has died, and another
   attempt continues from its last checkpoint.
4. When our parent is gone the job is stopped, so that no two attempts of a run are at work.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from training.children import CERTIFICATES, DEVICES, PARENT_VARIABLE, PLACES, RAY, ROOT
from training.errors import ClusterAway, ClusterRefused, TiltyardError
from training.journal import Event, Held, Journal, LogLine, RunFinished
from training.verl_backend.folder import JobFolder
from training.words import _, sentence

SAID_EVERY_S, PATIENCE_S = 30.0, 600.0

# A run that waits for the Ray cluster: its journal says so while it lasts, and the wait has an end.

T = TypeVar("T")


def in_thread(question: Callable[[], T], name: str) -> Future[T]:
    """Ask in a thread, for what may never answer: then the thread ends with the process."""
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as exc:  # it is raised where the answer is wanted
            answer.set_exception(exc)

    threading.Thread(target=ask, name=name, daemon=True).start()
    return answer


class Hold:
    """The wait of one job. ``write`` journals; ``clock`` is replaced by tests."""

    def __init__(self, write: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._since: float | None = None
        self._said_at = -SAID_EVERY_S

    def wait(self, error: TiltyardError, next_try_s: float) -> None:
        """It waits for the reason that ``error`` names. Raises the error once ``PATIENCE_S`` are over."""
        now = self._clock()
        if self._since is None:
            self._since, self._said_at = now, now - SAID_EVERY_S
        if (left := PATIENCE_S - (now - self._since)) <= 0:
            raise error
        if now - self._said_at >= SAID_EVERY_S:
            self._said_at = now
            self._write(Held(step=0, error=error.info, next_try_s=next_try_s, patience_left_s=left))

    def end(self) -> None:
        """It waits no more, if it did."""
        if self._since is not None:
            self._since = None
            self._write(Held(step=0))


POLL_S, LOG_BYTES = 1.0, 20_000
ANSWER_S, SUBMIT_S = 30.0, 300.0
"""How long an answer may take; submitting sends our code along."""
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
UNKNOWN = "status code 404"
"""In Ray's error for a job that it does not know."""
AGAIN = "try again later"
"""In Ray's error while its head has no node yet that takes jobs."""
FORGOTTEN = "The Ray cluster does not know this job any more: its head was restarted, or a person has deleted the job."
REFUSED = _("The Ray cluster at {address} refuses this worker's token: {why}")
OPEN = frozenset(
    {
        "VERL_PLATFORM",
        "VERL_USE_EXTERNAL_MODULES",
        "VERL_USE_EXTERNAL_PLUGINS",
        "OMP_NUM_THREADS",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_OMP_THREADS_BIND",
    }
)
"""The variables that verl and vLLM have to know before our code runs: they go with the job, for all to see."""
KEPT_HERE = frozenset({*PLACES, *DEVICES, *CERTIFICATES, *RAY, *OPEN, "PYTHONPATH", PARENT_VARIABLE, "RAY_TMPDIR"})
"""Of this machine alone."""


class Client(Protocol):
    """What Ray's ``JobSubmissionClient`` has."""

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any]) -> str:
        """Submit; the id. Raises ``RuntimeError`` where there is one of this id."""
        ...

    def get_job_status(self, job_id: str) -> str:
        """Its status. Raises ``RuntimeError`` with the code of a refusal, ``ConnectionError`` without an answer."""
        ...

    def stop_job(self, job_id: str) -> bool:
        """Ask for its end."""
        ...

    def get_job_logs(self, job_id: str) -> str:
        """What it has printed."""
        ...


class LimitedClient:
    """Ray's client with limits: it has none of its own, so a network that drops packets would keep us waiting without
    end. Errors of the network are ``ConnectionError``: Ray lets through those of ``requests``, which are not."""

    def __init__(self, make: Callable[[], Client], answer_s: float = ANSWER_S, submit_s: float = SUBMIT_S) -> None:
        self._answer_s, self._submit_s = answer_s, submit_s
        self._client = _answer_of(make, answer_s)

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any]) -> str:
        """As ``Client``."""
        submit = partial(
            self._client.submit_job, entrypoint=entrypoint, submission_id=submission_id, runtime_env=runtime_env
        )
        return _answer_of(submit, self._submit_s)

    def get_job_status(self, job_id: str) -> str:
        """As ``Client``."""
        return _answer_of(lambda: self._client.get_job_status(job_id), self._answer_s)

    def stop_job(self, job_id: str) -> bool:
        """As ``Client``."""
        return _answer_of(lambda: self._client.stop_job(job_id), self._answer_s)

    def get_job_logs(self, job_id: str) -> str:
        """As ``Client``."""
        return _answer_of(lambda: self._client.get_job_logs(job_id), self._answer_s)


def _answer_of(question: Callable[[], T], limit_s: float) -> T:
    """The answer. Raises ``ConnectionError`` without one, and what the question raises otherwise."""
    answer = in_thread(question, "ray-answer")
    try:
        return answer.result(limit_s)
    except TimeoutError as exc:
        raise ConnectionError(f"no answer within {limit_s:g} s") from exc
    except OSError as exc:
        raise exc if isinstance(exc, ConnectionError) else ConnectionError(str(exc)) from exc


def name_of(run_dir: Path) -> str:
    """The name of an attempt's job: the same wherever it is asked for."""
    return f"tiltyard-{hashlib.sha256(str(run_dir).encode()).hexdigest()[:24]}"


class ClusterJob:
    """One attempt's job. ``write`` journals; ``clock`` and ``rest`` are replaced by tests."""

    def __init__(
        self,
        folder: JobFolder,
        client: Client,
        write: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder, self._client, self._write = folder, client, write
        self._clock, self._rest = clock, rest
        self.name = name_of(folder.run_dir)

    def run(self, variables: dict[str, str]) -> int:
        """Submit it and wait for its end; the exit code. ``variables`` are ours."""
        self._folder.keep_variables({name: value for name, value in variables.items() if name not in KEPT_HERE})
        try:
            self._stop_earlier(self._folder.plan.earlier)
            runtime = {
                "env_vars": {name: value for name, value in variables.items() if name in OPEN},
                "py_modules": [str(ROOT / "training"), str(ROOT / "envs")],
            }
            self._submit(runtime)
            status = self._wait()
            with suppress(ConnectionError, RuntimeError):  # what it has printed decides nothing
                print(self._client.get_job_logs(self.name)[-LOG_BYTES:], flush=True)
        finally:
            self._folder.forget_variables()
        return 0 if status == "SUCCEEDED" else 1

    def _submit(self, runtime: dict[str, Any]) -> None:
        """Submit it. A head that has just started asks for a little time. Raises ``ConnectionError`` after a while."""
        command = f"python -m training.verl_backend {self._folder.path} --driver"
        until = self._clock() + SUBMIT_S
        while True:
            try:
                self._client.submit_job(entrypoint=command, submission_id=self.name, runtime_env=runtime)
            except RuntimeError as exc:
                if AGAIN not in str(exc):
                    raise
                if self._clock() > until:
                    raise ConnectionError(str(exc)) from exc
                self._rest(POLL_S)
            else:
                return

    def stop(self) -> None:
        """Have it end now, and leave nothing that opens environments."""
        self._folder.forget_variables()
        _stop(self._client, self.name)

    def _stop_earlier(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            if _stop(self._client, name_of(folder)):
                self._write(LogLine(level="warning", message=f"The Ray job of attempt {folder.name} was still there."))

    def _wait(self) -> str:
        """Its last status. Raises ``ClusterAway`` once the patience is spent."""
        hold = Hold(self._write, self._clock)
        while True:
            try:
                status = _status(self._client, self.name)
            except ConnectionError as exc:
                hold.wait(_away(exc), POLL_S)
            else:
                hold.end()
                if status is None:
                    self._write(LogLine(level="error", message=FORGOTTEN))
                    return "FAILED"
                if status in ENDED:
                    return status
            self._rest(POLL_S)


def connected(
    make: Callable[[], Client],
    write: Callable[[Event], None],
    clock: Callable[[], float] = time.monotonic,
    rest: Callable[[float], None] = time.sleep,
) -> LimitedClient:
    """A client of a cluster that answers. Raises ``ClusterAway`` once the patience is spent."""
    hold = Hold(write, clock)
    while True:
        try:
            client = LimitedClient(make)
        except ConnectionError as exc:
            hold.wait(_away(exc), POLL_S)
            rest(POLL_S)
        else:
            hold.end()
            return client


def _away(exc: Exception) -> ClusterAway:
    return ClusterAway(sentence(_("The Ray cluster does not answer: {why}"), why=" ".join(str(exc).split())[:200]))


def _status(client: Client, name: str) -> str | None:
    """Its status; ``None`` for a job that the cluster does not know.

    Raises ``ConnectionError`` for every other refusal: a head that is starting has errors of its own, and its jobs may
    be at work.
    """
    try:
        found: Any = client.get_job_status(name)
    except RuntimeError as exc:
        if UNKNOWN in str(exc):
            return None
        raise ConnectionError(str(exc)) from exc
    return str(getattr(found, "value", found))  # Ray's is an enumeration


def _stop(client: Client, name: str) -> bool:
    """Stop a job; whether there was one that had not ended."""
    if _status(client, name) in {None, *ENDED}:
        return False
    client.stop_job(name)
    return True


def submit(folder: JobFolder, address: str, watch: Callable[[Callable[[], None]], None]) -> int:
    """Run the job on the cluster at ``address``; the exit code. ``watch`` calls back when our parent is gone.

    A cluster that is away pauses the run. Its job, which may be at work, is asked to end by a file that it may read.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    journal, submitted = Journal(folder.own_journal), list[ClusterJob]()
    watch(lambda: submitted[0].stop() if submitted else None)
    try:
        job = ClusterJob(folder, connected(lambda: JobSubmissionClient(address), journal.write), journal.write)
        submitted.append(job)
        return job.run(dict(os.environ))
    except ClusterAway as exc:
        return _paused(journal, folder, exc)
    except ConnectionError as exc:
        return _paused(journal, folder, _away(exc))
    except AuthenticationError as exc:
        reason = str(exc).partition("\n")[0]
        return _paused(journal, folder, ClusterRefused(sentence(REFUSED, address=address, why=reason)))
    finally:
        journal.close()


def _paused(journal: Journal, folder: JobFolder, error: TiltyardError) -> int:
    """Pause the run; the exit code."""
    folder.ask_to_stop()
    journal.write(RunFinished(status="paused", step=0, error=error.info))
    sys.stderr.write(f"{error}\n")
    return 1
