"""A worker reports that it lives, and what it does: a row that a thread of its main process renews every ``BEAT_S``.

The name reaches the worker's children through ``TILTYARD_WORKER``, so that a lease can say whose it is. A
worker that is shut down takes its row away; one that was killed falls silent and is shown as gone, and the next
beat of any worker drops rows that are older than ``FORGET``.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

from celery import current_app
from celery.utils.nodenames import worker_direct
from django.apps import apps
from django.conf import settings
from django.db import ProgrammingError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from training.children import RAY_ADDRESS, bare_env, limited_child
from training.devices import Reading, read_devices, visible_devices
from training.plain import number_in
from webapp.common import objects
from webapp.common.database import measure
from webapp.common.errors import DATABASE_AWAY
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.secrets.vault import key_problem
from webapp.common.workers.models import GONE_AFTER, DataFolder, Drain, Worker, host_of

READ_EVERY_S, OLD_AFTER_S = 10.0, 30.0


# What the devices of a worker do now (``training/devices.py``): a thread reads it every few seconds.
#
# A driver that hangs must not silence the worker, so the beat only takes what was read last, and nothing once that is
# old.


class Reader(threading.Thread):
    """Reads the devices until it is asked to end. It may hang in the driver: nothing waits for it."""

    def __init__(self, ids: list[str]) -> None:
        super().__init__(name="worker-devices", daemon=True)
        self._ids = ids
        self._done = threading.Event()
        self._latest: tuple[float, list[Reading] | None] = (0.0, None)

    def run(self) -> None:
        """Read at once, then every ``READ_EVERY_S``."""
        while True:
            try:
                self._latest = (time.monotonic(), read_devices(self._ids))
            except Exception:  # the boundary to the driver: its figures are no reason to end the worker
                logger.exception("devices not read", extra={"action": "devices"})
            if self._done.wait(READ_EVERY_S):
                return

    def latest(self) -> list[dict[str, Any]] | None:
        """What was read last, as plain data; ``None`` without NVML, and where it is older than ``OLD_AFTER_S``."""
        at, found = self._latest
        if found is None or time.monotonic() - at > OLD_AFTER_S:
            return None
        return [reading._asdict() for reading in found]

    def end(self) -> None:
        """Read no more."""
        self._done.set()


# Whether this process sees the data folder of its installation.
#
# Runs, datasets and models lie in the data folder; the database only names them. A worker with another folder would
# find nothing there, and would end or restart healthy runs. So ``<data>/identity`` carries an id that the database
# knows. The first process of an installation writes both; a folder without the right one is never adopted by itself
# (``manage.py adopt_data_folder`` does it).

logger = logging.getLogger(__name__)
IDENTITY_NAME = "identity"
Problem = Literal["", "no_identity", "other_identity", "other_key", "older_version", "newer_version"] | objects.Problem
SITE_PROBLEMS: tuple[Problem, ...] = ("other_identity", "other_key", "older_version", "newer_version")
"""Those of a whole host, whatever its folder is."""


def identity_file() -> Path:
    """The file with the data folder's identity."""
    return Path(settings.DATA_DIR) / IDENTITY_NAME


def folder_identity() -> UUID | None:
    """The identity in the folder's file; ``None`` without a valid one."""
    try:
        return UUID(identity_file().read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1)
def _newest_migrations() -> dict[str, str]:
    """The number of the newest migration that this code has of each of our apps."""
    ours = [config for config in apps.get_app_configs() if config.name.startswith("webapp.")]
    numbers = {config.label: [path.name[:4] for path in Path(config.path).glob("migrations/0*.py")] for config in ours}
    return {label: max(found) for label, found in numbers.items() if found}


def version_problem() -> Problem:
    """Whether the database was migrated by a newer version than this code, or not yet by this one. Such a process
    could read or write only parts of its rows. Numbers are compared: names changed in development."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, max(left(name, 4)) FROM django_migrations GROUP BY app")
        applied = dict(cursor.fetchall())
    known = _newest_migrations()
    if any(applied.get(label, "") > newest for label, newest in known.items()):
        return "older_version"
    return "newer_version" if any(applied.get(label, "") < newest for label, newest in known.items()) else ""


def folder_problem() -> Problem:
    """Why this process must not take work; empty when it is of the database's version, sees the right folder and has
    the site's secret key.

    An installation without an identity (its first start, or the first after an update) gets the one of this folder.
    """
    if problem := version_problem():
        return problem
    known = DataFolder.objects.filter(pk=1).values_list("identity", flat=True).first()
    if known is None:
        known = _read_or_make_identity()
    found = folder_identity()
    if found == known:
        return "other_key" if key_problem() else ""
    return "no_identity" if found is None else "other_identity"


def training_problem() -> Problem:
    """Why this process must not take a run or a chat: as ``folder_problem``, but with ``TILTYARD_FILES`` a folder that
    carries no identity is a cache, and the store must be this site's. Asks the store: not in the main process of a
    worker (``objects``)."""
    problem = folder_problem()
    if not objects.enabled() or problem in SITE_PROBLEMS:
        return problem
    if problem and key_problem():
        return "other_key"
    identity = DataFolder.objects.filter(pk=1).values_list("identity", flat=True).first()
    return objects.problem(identity, claim=not problem)


def _problem_to_show(queues: list[str]) -> Problem:
    """For the row of a worker: one that only trains and chats may have a cache."""
    if not (objects.enabled() and set(queues) <= {TRAIN, ENDPOINT}):
        return folder_problem()
    problem = folder_problem()
    if problem == "no_identity":
        problem = "other_key" if key_problem() else ""
    return problem or objects.problem_seen()


def _read_or_make_identity() -> UUID:
    found = folder_identity()
    with transaction.atomic():
        row, created = DataFolder.objects.get_or_create(pk=1, defaults={"identity": found} if found else {})
    if created:
        _write_identity(row.identity)
    return row.identity


def folder_adopt() -> UUID:
    """Make this the folder of the installation, also where it had another identity."""
    known = DataFolder.objects.filter(pk=1).values_list("identity", flat=True).first() or _read_or_make_identity()
    _write_identity(known)
    return known


def _write_identity(identity: UUID) -> None:
    path = identity_file()
    fresh = path.with_name(f"{IDENTITY_NAME}.{os.getpid()}")
    with suppress(FileNotFoundError):
        fresh.unlink()
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{identity}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    logger.info("data folder carries its identity", extra={"action": "identity", "identity": str(identity)})


BEAT_S = 10.0
FORGET = timedelta(days=7)
ASK_LIMIT_S, MOST_GPUS = 10.0, 64
CAPABILITY = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
NAME_VARIABLE = "TILTYARD_WORKER"


def device() -> str:
    """The worker's device: the GPUs that it sees, or the CPU."""
    names = visible_devices()
    return f"GPU {', '.join(names)}"[:120] if names else "CPU"


class Gpu(NamedTuple):
    """A GPU as its driver reports it. ``memory`` is in bytes, ``capability`` CUDA's compute capability, as ``8.0``."""

    name: str
    memory: int
    capability: str = ""

    @property
    def key(self) -> str:
        """As ``python -m training memory --device`` takes it."""
        size = f"{self.name}={self.memory / (1 << 30):.1f}"
        return f"{size}@{self.capability}" if self.capability else size

    @property
    def title(self) -> str:
        """The GPU's name and memory for a page."""
        return f"{self.name} · {self.memory / (1 << 30):.1f} GiB"


@lru_cache(maxsize=1)
def gpu() -> Gpu | None:
    """The GPU with the least memory among those that this worker sees; ``None`` without one, or without its driver's
    own program. Asked once: GPUs do not change while a worker lives.
    """
    program = shutil.which("nvidia-smi")
    if program is None or device() == "CPU":
        return None
    command = [program, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command += ["-i", visible] if visible else []
    with limited_child(command, wall_s=ASK_LIMIT_S, env=bare_env()) as child:
        found = [_parse_gpu(line.decode("utf-8", "replace")) for line in islice(child.lines(), MOST_GPUS)]
    return min((item for item in found if item is not None), key=lambda item: item.memory, default=None)


def _parse_gpu(line: str) -> Gpu | None:
    """The GPU of one line of the driver's program: a name, MiB, and the compute capability."""
    name, mebibytes, capability = [""] * 3
    if line.count(",") >= 2:
        name, mebibytes, capability = (part.strip() for part in line.rsplit(",", 2))
    memory = number_in(mebibytes)
    if not name or memory is None:
        return None
    return Gpu(name[:80], memory << 20, capability if CAPABILITY.fullmatch(capability) else "")


def training_gpus() -> list[Gpu]:
    """The kinds of GPUs that runs are trained on here, from the least memory to the most: one of each living worker for
    training that has any."""
    columns = ("gpu_bytes", "gpu", "gpu_capability")
    found = living(TRAIN).exclude(gpu_bytes=None).order_by(*columns).values_list(*columns).distinct()
    return [Gpu(name, memory or 0, capability) for memory, name, capability in found]


def training_gpu() -> str:
    """The one with the least memory, as ``python -m training memory --device`` takes it; empty where there is none."""
    found = training_gpus()
    return found[0].key if found else ""


def gpu_known() -> bool | None:
    """Whether a living worker that trains sees a GPU; ``None`` while no such worker is known."""
    rows = Worker.objects.filter(queues__contains=[TRAIN], beat_at__gt=Now() - GONE_AFTER)
    devices = list(rows.values_list("device", flat=True))
    return any(device.startswith("GPU") for device in devices) if devices else None


def hardware() -> dict[str, Any]:
    """The columns of a worker's row that say what its runs find."""
    found = gpu()
    return {
        "device": device(),
        "gpus": len(visible_devices()),
        "gpu": found.name if found is not None else "",
        "gpu_bytes": found.memory if found is not None else None,
        "gpu_capability": found.capability if found is not None else "",
        "cluster": bool(os.environ.get(RAY_ADDRESS)),
    }


def worker_here() -> Worker:
    """The worker of this process as its row would be, without asking the database."""
    return Worker(name=worker_name(), **hardware())


def worker_name() -> str:
    """The worker that this process belongs to; empty for any other process."""
    return os.environ.get(NAME_VARIABLE, "")[:120]


def reporting(pool: str) -> QuerySet[Worker]:
    """Workers with places of this pool that reported lately, and whose host is not draining."""
    rows = Worker.objects.filter(queues__contains=[pool], beat_at__gt=Now() - GONE_AFTER)
    return rows.with_drains().filter(draining=False)  # type: ignore[misc]


def living(pool: str) -> QuerySet[Worker]:
    """Those that may claim."""
    return reporting(pool).filter(problem="")


def draining(worker: str = "") -> bool:
    """Whether this worker, by default the one of this process, must take nothing new."""
    return Drain.objects.filter(host=host_of(worker or worker_name())).exists()


def beat(name: str, pid: int, queues: list[str], places: int = 1, devices: list[dict[str, Any]] | None = None) -> None:
    """Write the row, with what its devices do now where that is known."""
    fields: dict[str, Any] = {
        "pid": pid,
        "queues": queues,
        "places": places,
        **hardware(),
        "devices": devices,
        "clock_s": measure(),
        "version": settings.PRODUCT_VERSION,
        "problem": _problem_to_show(queues),
        "beat_at": Now(),
    }
    Worker.objects.update_or_create(name=name[:120], defaults=fields, create_defaults={**fields, "started_at": Now()})
    Worker.objects.filter(beat_at__lt=Now() - FORGET).delete()


class Beats(threading.Thread):
    """Renews the row of this worker until it is asked to end."""

    def __init__(self, name: str, queues: list[str], places: int) -> None:
        super().__init__(name="worker-beat", daemon=True)
        self.worker, self.queues, self.places, self.pid = name, queues, places, os.getpid()
        self._done = threading.Event()
        self._devices = Reader(visible_devices() if TRAIN in queues else [])
        self._drains = False  # as it is after a start

    def _listen(self) -> None:
        """Take messages only while the host is not draining: one that this worker took and dropped would reach no
        other. A broker that is away is asked again at the next beat."""
        drains = draining(self.worker)
        if drains == self._drains:
            return
        change = current_app.control.cancel_consumer if drains else current_app.control.add_consumer
        try:
            for queue in self.queues:
                change(queue, destination=[self.worker])
        except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
            logger.warning("broker away", extra={"action": "drain", "error": repr(exc)[:200]})
        else:
            self._drains = drains
            logger.info("draining" if drains else "takes work", extra={"action": "drain", "worker": self.worker})

    def run(self) -> None:
        """Beat at once, then every ``BEAT_S``; a database that is away is tried again at the next beat."""
        self._devices.start()
        while True:
            try:
                beat(self.worker, self.pid, self.queues, self.places, self._devices.latest())
                self._listen()
            except DATABASE_AWAY as exc:
                logger.warning("worker could not beat", extra={"action": "beat", "error": repr(exc)[:200]})
            except ProgrammingError as exc:  # a column or table that this version expects is not there yet
                what = {"action": "beat", "problem": "newer_version", "error": repr(exc)[:200]}
                logger.error("this version is newer than the database: migrate it", extra=what)
            finally:
                connection.close()
            if self._done.wait(BEAT_S):
                return

    def end(self) -> None:
        """Stop, and take the row away if the database is there."""
        self._done.set()
        self._devices.end()
        self.join(timeout=BEAT_S)
        try:
            Worker.objects.filter(name=self.worker, pid=self.pid).delete()
        except DATABASE_AWAY:
            logger.info("worker leaves its row behind", extra={"action": "beat"})
        finally:
            connection.close()


_beats: list[Beats] = []


def begin_beating(sender: Any = None, **_signal: Any) -> None:
    """``worker_ready``: from now on it is seen."""
    own = worker_direct(str(sender.hostname)).name
    queues = sorted(str(queue.name) for queue in sender.task_consumer.queues if queue.name != own)
    _beats.append(Beats(str(sender.hostname), queues, int(sender.controller.concurrency)))
    _beats[-1].start()


def end_beating(**_signal: Any) -> None:
    """``worker_shutdown``: it leaves in order."""
    while _beats:
        _beats.pop().end()


def name_children(sender: Any = None, **_signal: Any) -> None:
    """``celeryd_after_setup``: before any child is forked."""
    os.environ[NAME_VARIABLE] = str(sender)
