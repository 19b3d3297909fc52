"""Background work of any kind: rows that one worker at a time turns into a result.

1. A row is work while its state is one of its model's ``OPEN``. ``enqueue`` sends a message, which is only a hint.
2. *Claim*: one update writes a fresh token where there is none. All times are those of the database's clock.
3. *Hold*: a thread renews ``heard_at`` for as long as the work runs, so that a living worker is never silent.
4. *Fence*: progress and outcome are written only where the token is still the worker's own; one that lost it gets
   ``Lost`` and leaves, and has changed nothing.
5. *Find*: ``look`` takes the token from a worker that was silent for ``SILENT_AFTER_S``, and sends untaken work again.
6. *End*: a failure, the time limit and one worker lost too many all end the row by its kind's ``failed``.

Workers have two pools of places: what takes seconds never waits behind what takes hours. In each pool one person's
work takes at most all places but one.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from celery import current_app, shared_task
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_noop

from training.errors import DataError, TiltyardError
from training.plain import os_reason
from training.words import sentence
from webapp.common.database import expiry, rows_of
from webapp.common.errors import DATABASE_AWAY
from webapp.common.pools import LONG, SHORT
from webapp.common.workers.beating import draining, folder_problem

logger = logging.getLogger(__name__)
CROWDED = 7_171_003  # lock: only one worker at a time counts a person's work
TRIES = 3  # how many workers one row may cost
PROGRESS_EVERY_S = 0.5
SENT_AT_ONCE = 100
EXPIRES = 4  # times ``AGAIN_AFTER_S``: by then several others were sent
TOO_OFTEN = gettext_noop("It was started {n} times, and each time its worker was lost.")


class Lost(Exception):
    """Another worker has the work now, or it is gone."""


class Work(models.Model):
    """The columns of a claim. A model of this kind has a ``state``, and names those in which a worker is wanted."""

    OPEN: ClassVar[tuple[str, ...]] = ()
    LIMIT_S: ClassVar[int] = 900  # how long one worker may take
    SILENT_AFTER_S: ClassVar[int] = 60
    AGAIN_AFTER_S: ClassVar[int] = 30  # a message that no worker took is sent again after this
    POOL: ClassVar[str] = LONG
    SINCE: ClassVar[str] = "created_at"  # the column that says since when it is wanted
    PRIORITY: ClassVar[int] = 6  # of its messages in the queue; smaller goes first

    token = models.CharField(max_length=16, blank=True, default="", help_text="whose the work is; empty while it waits")
    heard_at = models.DateTimeField(null=True, help_text="last sign of its worker, or when one was last asked for")
    tries = models.PositiveSmallIntegerField(default=0, help_text="workers that have taken it")
    progress = models.JSONField(default=dict, help_text="how far its worker is, for people")

    class Meta:
        abstract = True

    @property
    def pool(self) -> str:
        """The pool whose places it takes."""
        return self.POOL

    @classmethod
    def pool_in_sql(cls) -> models.expressions.Combinable:
        """The pool as SQL."""
        return Value(cls.POOL, output_field=models.CharField())


W = TypeVar("W", bound=Work)


@dataclass
class Claim(Generic[W]):
    """A row that is this worker's, as it was when it was taken."""

    item: W
    token: str
    _written: float = 0.0

    def mine(self) -> QuerySet[W]:
        """The row as long as this worker may write it."""
        rows: QuerySet[W] = type(self.item)._default_manager.filter(pk=self.item.pk)
        return rows.filter(state__in=self.item.OPEN, token=self.token).order_by()

    def keep(self, **columns: Any) -> None:
        """Write columns. Raises ``Lost``, as all that follow do."""
        if not self.mine().update(**({"heard_at": Now()} | columns)):
            raise Lost

    def report(self, values: dict[str, Any], *, at_once: bool = False) -> None:
        """Keep progress, at most once in ``PROGRESS_EVERY_S``."""
        if at_once or time.monotonic() - self._written >= PROGRESS_EVERY_S:
            self._written = time.monotonic()
            self.keep(progress=values)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A transaction in which no other worker can take the row: for moving files into their place. Raises
        ``Lost``."""
        with transaction.atomic():
            if not self.mine().select_for_update().exists():
                raise Lost
            yield

    def finish(self, **columns: Any) -> None:
        """Write the outcome, with a state that is not open."""
        self.keep(token="", tries=0, progress={}, **columns)

    def wait(self, seconds: float | None = None, **columns: Any) -> None:
        """Give it back for now: there is more to do after ``seconds``, by default ``AGAIN_AFTER_S``."""
        later = timedelta(seconds=0 if seconds is None else seconds - self.item.AGAIN_AFTER_S)
        self.keep(token="", tries=0, heard_at=Now() + later, **columns)


@dataclass(frozen=True)
class Kind(Generic[W]):
    """One kind of work: what a worker does with a row of ``model``, and what is written for one that fails."""

    model: type[W]
    run: Callable[[Claim[W]], None]
    failed: Callable[[W, TiltyardError], dict[str, Any]]
    too_long: str = gettext_noop("It took too long.")
    hint: str = ""
    at_work: str = ""  # the state of a row that is being worked on, where it has one
    ended: Callable[[W], None] | None = None  # after the outcome is written


KINDS: dict[str, Kind[Any]] = {}


def register(kind: Kind[Any]) -> None:
    """Let workers do this kind of work; called by the ``tasks`` modules, which every worker imports."""
    KINDS[kind.model._meta.label_lower] = kind


def enqueue(item: Work) -> None:
    """Ask for a worker once the transaction is over. A broker that is down costs only time: ``look`` asks again."""
    transaction.on_commit(lambda: _send(item), robust=True)


def _send(item: Work) -> bool:
    type(item)._default_manager.filter(pk=item.pk, token="").update(heard_at=Now())
    options = {"queue": item.pool, "priority": item.PRIORITY, "expires": expiry(EXPIRES * item.AGAIN_AFTER_S)}
    options |= {"soft_time_limit": item.LIMIT_S, "time_limit": item.LIMIT_S + 30}
    try:
        current_app.send_task("work.do", args=[item._meta.label_lower, str(item.pk)], retry=False, **options)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("work not sent: %s", exc, extra={"work": item._meta.label_lower, "object_id": str(item.pk)})
        return False
    return True


def claim(model: type[W], pk: Any, *, at_work: str = "") -> Claim[W] | None:
    """Take a row for this worker; ``None`` when there is nothing to do or another worker has it."""
    token = secrets.token_hex(8)
    columns = {"state": at_work} if at_work else {}
    rows = model._default_manager.filter(pk=pk, state__in=model.OPEN, token="").order_by()
    if not rows.update(token=token, heard_at=Now(), tries=F("tries") + 1, progress={}, **columns):
        return None
    item = model._default_manager.filter(pk=pk, token=token).first()
    return Claim(item, token) if item is not None else None


def claim_fairly(kind: Kind[W], pk: Any) -> Claim[W] | None:
    """As ``claim``, but leave the row for later while its person's work has all places of the pool but one."""
    item = kind.model._default_manager.filter(pk=pk, state__in=kind.model.OPEN, token="").first()
    if item is None:
        return None
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CROWDED])
        if not crowded(item):
            return claim(kind.model, pk, at_work=kind.at_work)
    kind.model._default_manager.filter(pk=pk, token="").update(heard_at=None)
    return None


def crowded(item: Work) -> bool:
    """Whether the work of its person has all places of its pool but one."""
    person, places = getattr(item, "created_by_id", None), settings.POOLS[item.pool]
    if person is None or places < 2:
        return False
    theirs = [kind.model for kind in KINDS.values() if hasattr(kind.model, "created_by_id")]
    rows = (_open_rows(model).filter(created_by=person, of_pool=item.pool).exclude(token="") for model in theirs)
    return sum(each.count() for each in rows) >= places - 1


def _open_rows(model: Any) -> QuerySet[Any]:
    """Rows that are not done, with the pool whose places they take."""
    return model._default_manager.filter(state__in=model.OPEN).annotate(of_pool=model.pool_in_sql()).order_by()


@dataclass(frozen=True)
class Load:
    """How full a pool is: ``oldest_s`` seconds is the longest that one row waits; ``None`` where none does."""

    pool: str
    places: int
    at_work: int = 0
    waiting: int = 0
    oldest_s: float | None = None


def loads() -> list[Load]:
    """Of all pools. Work that waits for its own time, such as a message that is sent again later, does not count."""
    found = {pool: Load(pool, places) for pool, places in settings.POOLS.items()}
    for pool, token, age in rows_of(_due):
        load, age_s = found[pool], age.total_seconds() if age is not None else 0.0
        if token:
            found[pool] = replace(load, at_work=load.at_work + 1)
        else:
            found[pool] = replace(load, waiting=load.waiting + 1, oldest_s=max(load.oldest_s or 0.0, age_s))
    return list(found.values())


def _due() -> QuerySet[Any, Any]:
    """Pool, token and age of all rows that are not done and wait for no time of their own."""
    kinds = [model for model in apps.get_models() if issubclass(model, Work) and model.POOL in (SHORT, LONG)]
    due = ~Q(token="") | Q(heard_at=None) | Q(heard_at__lte=Now())
    rows = [_open_rows(model).filter(due).values_list("of_pool", "token", Now() - F(model.SINCE)) for model in kinds]
    return rows[0].union(*rows[1:], all=True)


def silent(model: type[W]) -> QuerySet[W]:
    """Rows whose worker has been silent for too long."""
    before = Now() - timedelta(seconds=model.SILENT_AFTER_S)
    return model._default_manager.filter(state__in=model.OPEN, heard_at__lt=before).exclude(token="").order_by()


def waiting(model: type[W]) -> QuerySet[W]:
    """Rows that no worker has, and for which no message was sent lately."""
    before = Now() - timedelta(seconds=model.AGAIN_AFTER_S)
    late = Q(heard_at=None) | Q(heard_at__lt=before)
    rows = model._default_manager.filter(late, state__in=model.OPEN, token="")
    return rows.order_by(F("heard_at").asc(nulls_first=True))


def look() -> None:
    """Find what was lost: workers that fell silent, and messages that no worker took."""
    for kind in KINDS.values():
        if lost := silent(kind.model).update(token="", heard_at=None):
            logger.warning("workers fell silent", extra={"work": kind.model._meta.label_lower, "rows": lost})
    for kind in KINDS.values():
        for item in waiting(kind.model)[:SENT_AT_ONCE]:
            if not _send(item):
                return  # the broker is away: each further message would wait for it again


@shared_task(name="work.do", ignore_result=True)
def do(label: str, pk: str) -> None:
    """Do one piece of work, unless another worker has it. Its time limit comes with the message."""
    if problem := folder_problem():  # its files are not here; another worker is asked again
        logger.error("this worker does nothing", extra={"work": label, "object_id": pk, "problem": problem})
        return
    if draining():
        return
    kind = KINDS[label]
    taken = claim_fairly(kind, pk)
    if taken is not None:
        perform(kind, taken)


def perform(kind: Kind[W], taken: Claim[W]) -> None:
    """Do claimed work until its outcome, or leave it where it was lost or the database is away."""
    about = {"work": kind.model._meta.label_lower, "object_id": str(taken.item.pk)}
    try:
        try:
            if taken.item.tries > TRIES:
                raise DataError(sentence(TOO_OFTEN, n=TRIES))
            with _claim_kept_alive(taken):
                kind.run(taken)
        except (Lost, *DATABASE_AWAY):
            raise
        except Exception as exc:  # work that is left open would be tried again
            taken.finish(**kind.failed(taken.item, _failure_of(kind, exc, about)))
    except Lost:
        logger.info("work given up", extra=about)
    else:
        if kind.ended is not None:
            kind.ended(taken.item)


def _failure_of(kind: Kind[Any], exc: Exception, about: dict[str, str]) -> TiltyardError:
    """Why work failed, in sentences that a page can translate."""
    if isinstance(exc, TiltyardError):
        return exc
    if isinstance(exc, ValidationError):
        return DataError(" ".join(exc.messages))
    if isinstance(exc, SoftTimeLimitExceeded):
        return DataError(sentence(kind.too_long), hint=sentence(kind.hint))
    logger.exception("work failed", extra=about)
    if isinstance(exc, OSError):
        return DataError(sentence(gettext_noop("The result could not be stored: {why}."), why=os_reason(exc)))
    return DataError(sentence(gettext_noop("An unexpected failure inside Tiltyard ({what})."), what=type(exc).__name__))


@contextmanager
def _claim_kept_alive(taken: Claim[Any]) -> Iterator[None]:
    """Renew ``heard_at`` meanwhile, so that a child process or a large file does not count as silence."""
    done = threading.Event()
    thread = threading.Thread(target=_renew_claim, args=(taken, done), name="work-heard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=10)


def _renew_claim(taken: Claim[Any], done: threading.Event) -> None:
    with suppress(Lost):
        while not done.wait(taken.item.SILENT_AFTER_S / 4):
            try:
                taken.keep()
            except DATABASE_AWAY as exc:  # away; it may come back before we count as silent
                logger.warning("not heard: %s", exc)
                connection.close()
    connection.close()
