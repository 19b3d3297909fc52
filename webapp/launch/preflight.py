"""Preflight: finds the problems of a run before it is launched, and explains them in plain words.

Cheap checks run here; what needs the trainer's libraries runs as ``python -m training preflight`` in its own process
with a wall limit. A *hard* problem (the config, an address that may not be reached) always blocks the launch; any other
may be overridden by the person, because its cause may pass (a server that starts later) or its estimate may be wrong.
A *remark* stops nothing: what will only take longer, and a check that took too long itself.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.children import (
    CERTIFICATES,
    MODELS,
    PLACES,
    RAY_ADDRESS,
    VERL_PYTHON,
    VLLM_PYTHON,
    child_env,
    limited_child,
)
from training.config import JobConfig, config_to_yaml, kind_in, name_in
from training.errors import ConfigError, SecretUnreadable, StorageLimit, TiltyardError
from training.rewards.defaults import default_rewards
from training.rewards.scoring import form_components, validate_components
from webapp.common.host import LOOPBACK
from webapp.common.outbound import OutboundRefused, target_of
from webapp.common.pools import TRAIN
from webapp.common.text import in_words
from webapp.common.words import failure
from webapp.common.workers.beating import living, training_gpu
from webapp.common.workers.models import Needs, host_of
from webapp.endpoints.selectors import endpoint_named, endpoint_state
from webapp.endpoints.services import key_env
from webapp.endpoints.spending import day_over
from webapp.engine.resolve import environments_of, resolve
from webapp.engine.trainer import access_env, tracker_env
from webapp.environments.models import Environment
from webapp.environments.selectors import Room, environment_named, replicas_to_add, room_of
from webapp.environments.tokens import reach, trainer_access
from webapp.launch.estimates import disk_forecast, disk_sentence
from webapp.launch.findings import Check, Offer, Outcome, option_title
from webapp.launch.held_out import held_out_check, part_check
from webapp.launch.learned import overlap_of
from webapp.people.teams.models import Project
from webapp.people.teams.services import hub_env
from webapp.rewards.cases import paid_for
from webapp.runs.models import Run
from webapp.runs.records.limits import require_storage
from webapp.runs.records.queue_words import SHOWN, needs_words, worker_words
from webapp.runs.records.sessions import rooms_of, sessions_asked

# --- Checking rewards -----------------------------------------------------------------------------------------------
# The checks of the reward before a launch: whether it can be scored, and what it pays for.


def check_rewards(asked: JobConfig, config: JobConfig) -> Check:
    """Whether the components of a job can be scored, and where they come from when none were ``asked`` for."""
    problems = validate_components(config.rewards.components) if config.rewards.components else []
    if problems:
        sentence, detail = _("These reward components cannot be scored."), " ".join(map(in_words, problems))
        return Check(_("Rewards"), False, sentence, "", True, "rewards.components", detail)
    message = _("%(count)s components can be scored.") % {"count": len(config.rewards.components)}
    if not (asked.rewards.spec or asked.rewards.components):
        message = f"{message} {_by_default(config)}"
    return Check(_("Rewards"), True, message, "", True)


def _by_default(config: JobConfig) -> str:
    told_by = default_rewards(config).told_by
    if told_by == "environment":
        return _("No spec was chosen: the environment's verdict counts 0.6, the form of tool calling 0.4.")
    if told_by == "answers":
        return _("No spec was chosen: the right answer of each row counts 0.6, the form of tool calling 0.4.")
    return _(
        "No spec was chosen, and nothing reports whether a task was solved, so only the form of tool calls is rewarded."
    )


def check_paid(project: Project, config: JobConfig) -> Iterator[Check]:
    """Whether the reward pays for solving the task, and more for it than for all else."""
    found = paid_for(project, config.rewards.components or form_components())
    if found is not None:
        yield Check(
            _("What is rewarded"), False, found.whole, found.hint, path="rewards.components", remark=True, grave=True
        )


logger = logging.getLogger(__name__)
WALL_LIMIT_S = 30.0  # while a person waits for the page
LONG_LIMIT_S = 240.0  # in the background
MAX_LINES = 1000  # of what the trainer's checks print
KEEP_FREE_BYTES = 2 * 1024**3
ASKED_BEFORE = frozenset({"environment", "rewards"})  # reported once already when they are all right
COUNTED_HERE = "slots"  # where the servers report them: over all replicas, with an offer to start more
_processes = threading.BoundedSemaphore(2)  # each imports torch; more at once would starve the pages
_OWN_PLACES = ("TILTYARD_MODELS_DIR", "TILTYARD_DATA_DIR", VLLM_PYTHON, VERL_PYTHON, RAY_ADDRESS)


def preflight(
    project: Project,
    config: JobConfig,
    *,
    full: bool = True,
    say: Callable[[Check], None] | None = None,
    limit_s: float = WALL_LIMIT_S,
) -> Outcome:
    """Check a config for a project. ``full`` also asks the environment and the trainer, which takes seconds.

    ``say`` is called with each finding as soon as it is known. The trainer's own checks may take ``limit_s``.
    """
    try:
        resolved = resolve(project, config).config
    except ConfigError as exc:
        return Outcome(_report_each([_unresolved_check(exc)], say), None)
    checks = _report_each(_quick_checks(project, config, resolved), say)
    if full and not any(check.hard and not check.ok for check in checks):
        checks += _report_each(_slow_checks(project, config, resolved, limit_s), say)
    return Outcome(checks, resolved)


def _report_each(checks: Iterable[Check], say: Callable[[Check], None] | None) -> list[Check]:
    found = []
    for check in checks:
        found.append(check)
        if say is not None:
            say(check)
    return found


def _unresolved_check(exc: ConfigError) -> Check:
    return Check(_("References"), False, exc.sentence, exc.hint, True, exc.option)


def _quick_checks(project: Project, config: JobConfig, resolved: JobConfig) -> Iterator[Check]:
    """The checks that are answered here at once."""
    yield Check(_("References"), True, _("Dataset, model, environment and reward were found."))
    if resolved.method.plays:
        yield from (
            check_rewards(each.asked, each.resolved).of(each.stage) for each in _named_courses(config, resolved)
        )
    if resolved.method.learns_from == "rollouts":
        for each in _named_courses(config, resolved):
            yield from (check.of(each.stage) for check in check_paid(project, each.resolved))
            yield held_out_check(project, each.resolved).of(each.stage)
        yield from _check_pull(project, config)
    for course, environment in _played_environments(project, config, resolved):
        yield _check_address(course.resolved, environment).of(course.stage)
        yield from (check.of(course.stage) for check in _check_other_hosts(course.resolved, environment))
    if resolved.asks_endpoint:
        yield _check_endpoint(project, resolved)
    if resolved.method.evaluates and resolved.needs_model:
        yield from _check_overlap(project, resolved)
    yield from _check_secrets(project, config, resolved)
    yield from _check_workers(resolved)
    yield from _check_limit(project, resolved)
    yield from _check_sessions(project, config, resolved)
    yield from _check_storage(project)
    yield _check_disk(resolved)


def _check_secrets(project: Project, config: JobConfig, resolved: JobConfig) -> Iterator[Check]:
    """A key or token that the trainer needs and that this site's secret key does not read."""
    try:
        trainer_access(project, *environments_of(config))
        key_env(project, resolved.endpoint)
        hub_env(project, resolved)
    except SecretUnreadable as exc:
        yield Check(_("Keys and tokens"), False, in_words(exc.message), in_words(exc.hint), True)


def _check_overlap(project: Project, resolved: JobConfig) -> Iterator[Check]:
    """An evaluation on tasks that the model learned from is one that says little about others; and one of a held-out
    share plays few of the tasks that it names."""
    if resolved.evaluate.share:
        yield part_check(resolved)
    found = overlap_of(project, resolved)
    if found.learned:
        message = _("%(learned)s: success on these tasks says little about others.")
        hint = _("Choose a dataset that the model did not learn from.")
        yield Check(_("Tasks"), False, message % {"learned": found.words}, hint, path="data.train", remark=True)


def _slow_checks(project: Project, config: JobConfig, resolved: JobConfig, limit_s: float) -> Iterator[Check]:
    """The checks that ask the environments and the trainer."""
    counted = True
    for course, environment in _played_environments(project, config, resolved):
        room = room_of(environment)
        counted = counted and (room.free is not None or not room.answering)
        yield _check_room(course.resolved, environment, room).of(course.stage)
    access = trainer_access(project, *environments_of(config)) | tracker_env(resolved)
    for check in _trainer_checks(resolved, access, limit_s):
        if not (counted and check.title == _check_title(COUNTED_HERE)):
            yield check


class _Course(NamedTuple):
    """The whole job, or the job of one stage or part under its name: as it was asked for, and with its references
    resolved."""

    stage: str
    asked: JobConfig
    resolved: JobConfig


def _named_courses(config: JobConfig, resolved: JobConfig) -> list[_Course]:
    return [_Course(*each) for each in zip(config.named_courses, config.courses, resolved.courses, strict=True)]


def _played_environments(
    project: Project, config: JobConfig, resolved: JobConfig
) -> Iterator[tuple[_Course, Environment]]:
    """The environments that are played, each with the course that needs most sessions."""
    largest: dict[str, _Course] = {}
    for course in _named_courses(config, resolved) if resolved.method.plays else ():
        name, needed = course.asked.environment.name, course.resolved.rollouts_per_step
        if name not in largest or needed > largest[name].resolved.rollouts_per_step:
            largest[name] = course
    for name, course in largest.items():
        environment = environment_named(project, name_in("environment", name))
        if environment is not None:
            yield course, environment


def _check_pull(project: Project, config: JobConfig) -> list[Check]:
    """A model that was fine-tuned has something to lose. The starter's chain has not, so it gets no remark."""
    run = Run.objects.filter(project=project, name=name_in("run", config.model.source)).first()
    if (
        config.gradient.beta
        or run is None
        or run.method.learns_from != "demonstrations"
        or kind_in(config.model.source) != "run"
    ):
        return []
    if run.config.get("model", {}).get("source") == "starter":
        return []
    sentence = _("Without a KL weight the model can drift from what “%(name)s” taught it.") % {"name": run.name}
    return [
        Check(
            _("KL weight β"),
            False,
            sentence,
            _("0.001 to 0.04 is usual after SFT."),
            False,
            f"{config.method.gradient}.beta",
        )
    ]


def _check_address(config: JobConfig, environment: Environment) -> Check:
    """The same decision as at registration: what may be reached can have changed since."""
    title = _("Environment address")
    if not config.environment.url:
        sentence = _("No server of environment “%(name)s” runs.") % {"name": environment.name}
        offer = Offer(str(environment.pk), 1) if environment.launched else None
        hint = _("Start one here or on the environment's page, then check again.")
        return Check(title, False, sentence, hint, False, "environment.name", offer=offer)
    try:
        for url in (config.environment.url, *config.environment.replicas):
            reach(environment, url)
    except OutboundRefused as exc:
        return Check(title, False, exc.message, exc.hint, True, "environment.url")
    except TiltyardError as exc:
        return Check(title, False, exc.message, exc.hint, False, "environment.name")
    return Check(title, True, _("The address is allowed."))


def _check_other_hosts(config: JobConfig, environment: Environment) -> Iterator[Check]:
    """Servers that listen on loopback are out of reach of workers of other hosts; this one has them."""
    urls, here = (config.environment.url, *config.environment.replicas), socket.gethostname()
    inside = next((url for url in urls if urlsplit(url).hostname in LOOPBACK), None)
    if inside is None or config.asks_endpoint:
        return
    needs = Needs.of(config)
    able = [worker.name for worker in living(TRAIN).order_by("name") if needs.met_by(worker)]
    away = [name for name in able if host_of(name) != here]
    if not away:
        return
    sentence = _("%(worker)s is on another host, and cannot reach %(url)s: only this host can.")
    values = {"worker": away[0], "url": inside}
    hint = (
        _("Set TILTYARD_REPLICA_HOST to a name that other hosts know this one by, and start the servers again.")
        if environment.launched
        else _("Register the environment under an address that other hosts reach.")
    )
    some = len(away) < len(able)
    yield Check(_("Environment address"), False, sentence % values, hint, path="environment.name", remark=some)


def _check_endpoint(project: Project, config: JobConfig) -> Check:
    """Whether the endpoint may be asked, and what its own page knows of it."""
    title, place = _("Endpoint"), config.endpoint
    try:
        target_of(place.url)
    except TiltyardError as exc:
        hard = isinstance(exc, OutboundRefused)
        return Check(title, False, exc.message, exc.hint, hard, "model.source" if place.name else "endpoint.url")
    if over := day_over(project.pk, place.name):
        return Check(title, False, in_words(over.message), in_words(over.hint), False, "model.source")
    found = endpoint_named(project, place.name) if place.name else None
    if found is not None and found.context_tokens and config.longest_text > found.context_tokens:
        sentence = _("Its context has %(has)s tokens; prompt and episode may have %(needs)s together.")
        values = {"has": found.context_tokens, "needs": config.longest_text}
        hint = _("Longer episodes will be refused by it and are missing in the figures: lower the limits of tokens.")
        return Check(title, False, sentence % values, hint, False, "rollout.max_completion_tokens", remark=True)
    if found is not None and endpoint_state(found) != "ok":
        sentence = _("It was not tested with success since it was last changed.")
        return Check(title, False, sentence, _("Test it on its page."), False, "model.source", remark=True)
    return Check(title, True, _("The address is allowed."))


def _check_room(config: JobConfig, environment: Environment, room: Room) -> Check:
    """Whether its servers answer now, and together have room for the rollouts of one step."""
    title, needed = _("Environment server"), config.rollouts_per_step
    more = replicas_to_add(environment, room, needed)
    offer = Offer(str(environment.pk), more) if more else None
    if not room.answering:
        message = room.problem.message if room.problem else _("None of its servers runs.")
        hint = (room.problem.hint if room.problem else "") or _("Start the server, or choose another environment.")
        return Check(title, False, message, hint, False, "environment.name", offer=offer)
    if room.free is None:
        return Check(title, True, _("It answers, but does not say how many sessions are free."))
    if not room.free:
        message = _("All of its %(slots)s sessions are taken.") % {"slots": room.slots}
        hint = _("A step waits for a free session; after the environment's patience the run pauses.")
        return Check(title, False, message, hint, False, "environment.name", offer=offer, remark=True)
    counts = {"free": room.free, "slots": room.slots, "needed": needed, "replicas": room.answering}
    count = min(room.free, config.environment.sessions * room.answering or room.free)
    if count < needed:
        message = _("It plays %(count)s at a time, and one step has %(needed)s rollouts.")
        hint = _("The others wait for their turn: playing a step takes about %(rounds)s times as long.")
        values = {"count": count, "needed": needed, "rounds": -(-needed // count)}
        return Check(title, True, message % values, hint % values, False, "environment.name", offer=offer)
    if room.answering == 1:
        sentence = _("It answers; %(free)s of %(slots)s sessions are free, %(needed)s are needed.")
    else:
        sentence = _("%(replicas)s replicas answer; %(free)s of %(slots)s sessions are free, %(needed)s are needed.")
    return Check(title, True, sentence % counts)


def _check_workers(config: JobConfig) -> Iterator[Check]:
    """Whether a living worker has the devices that a run asks for; no finding where any device will do."""
    needs = Needs() if config.asks_endpoint else Needs.of(config)
    if needs == Needs():
        return
    title, words = _("Workers"), needs_words(needs)
    workers = list(living(TRAIN).order_by("name"))
    able = [worker.name for worker in workers if needs.met_by(worker)]
    if able:
        sentence = _("%(worker)s has what the run asks for: %(needs)s.") % {"worker": able[0], "needs": words}
        yield Check(title, True, sentence)
        return
    sentence = _("No worker that is alive has what the run asks for: %(needs)s. The run would wait until one has it.")
    detail = " ".join(worker_words(worker) for worker in workers[:SHOWN])
    hint = _("Start a worker that has it, or ask for less.")
    path = next((path for path, asked in _asked_devices(config) if asked), "run.device")
    yield Check(title, False, sentence % {"needs": words}, hint, path=path, detail=detail)


def _check_limit(project: Project, config: JobConfig) -> Iterator[Check]:
    """A run that asks for more devices than its project may have at once would wait until that is changed."""
    limit = project.device_limit
    if limit is None or config.asks_endpoint or config.devices <= limit:
        return
    sentence = _("It asks for %(asks)d devices at once, and this project may have %(limit)d: the run would wait.")
    hint = _("Ask for fewer devices, or ask an administrator of this installation for a higher limit.")
    values = {"asks": config.devices, "limit": limit}
    yield Check(_("Device limit"), False, sentence % values, hint, path="hardware.devices")


def _check_sessions(project: Project, config: JobConfig, resolved: JobConfig) -> Iterator[Check]:
    """A run that plays more at once than the servers of an environment hold gets all of it, and waits for that."""
    asked = {name_in("environment", name): count for name, count in sessions_asked(config, resolved).items()}
    for room in rooms_of([project.pk]).values():
        if asked.get(room.name, 0) > room.slots:
            sentence = _(
                "It plays %(asks)d episodes at once, and %(name)s holds %(slots)d: the run waits until it can have all "
                "of them, and no other run plays there meanwhile."
            )
            values = {"asks": asked[room.name], "name": room.name, "slots": room.slots}
            hint = _("Start more servers of it, or play fewer rollouts in a step.")
            path = "environment.name"
            yield Check(_("Environment sessions"), False, sentence % values, hint, path=path, remark=True)


def _check_storage(project: Project) -> Iterator[Check]:
    """A project that stores as much as it may launches nothing."""
    try:
        require_storage(project)
    except StorageLimit as exc:
        yield Check(_("Storage limit"), False, exc.sentence)


def _asked_devices(config: JobConfig) -> Iterator[tuple[str, bool]]:
    """The options that ask for devices, and whether each does."""
    yield "hardware.hosts", config.by_verl and config.hardware.hosts > 1
    yield "hardware.devices", config.by_verl and config.hardware.devices > 1
    yield "hardware.sampler_devices", config.by_verl and config.hardware.sampler_devices > 0
    yield "hardware.gpu_memory", config.hardware.gpu_memory > 0
    yield "hardware.gpu_model", bool(config.hardware.gpu_model.strip())
    managed = config.samples_with_vllm and config.vllm.mode == "managed"
    yield "vllm.tensor_parallel", managed and config.vllm.tensor_parallel > 1


def _check_disk(config: JobConfig) -> Check:
    """Whether what the run will write fits; a forecast, so it never blocks a launch."""
    free, found = shutil.disk_usage(settings.DATA_DIR).free, disk_forecast(config)
    fits = free - (found.total if found else 0) >= KEEP_FREE_BYTES
    message = _("%(free)s are free for checkpoints and records.") % {"free": filesizeformat(free)}
    if found is not None:
        message = f"{disk_sentence(config, found)} {message}"
    hint = "" if fits else _("Free some space, keep fewer checkpoints, or train a LoRA adapter.")
    return Check(_("Disk"), fits, message, hint, path="" if fits else "run.save_every", remark=not fits)


def _trainer_checks(config: JobConfig, access: dict[str, str], limit_s: float = WALL_LIMIT_S) -> Iterator[Check]:
    """The trainer's own findings, or why it could not be asked. A slow check does not block a launch."""
    title = _("Trainer")
    with one_of_few(limit_s / 2) as free:
        if free:
            yield from _ask_trainer(config, access, limit_s, title)
        else:
            hint = _("The trainer checks this when it starts.")
            yield Check(title, False, _("Other checks are still running, so it was not asked."), hint, remark=True)


@contextmanager
def one_of_few(wait_s: float) -> Iterator[bool]:
    """A place among the children that load the trainer's libraries; false where none got free in time."""
    free = _processes.acquire(timeout=wait_s)
    try:
        yield free
    finally:
        if free:
            _processes.release()


def _ask_trainer(config: JobConfig, access: dict[str, str], limit_s: float, title: str) -> Iterator[Check]:
    """Run the command with a minimal environment and give its findings while it writes them, one a line."""
    with tempfile.TemporaryDirectory(prefix="preflight-", dir=settings.DATA_DIR) as folder:
        path, printed = Path(folder), []
        (path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
        command = [sys.executable, "-m", "training", "preflight", str(path / "config.yaml"), "--json"]
        command += ["--device", gpu] if (gpu := training_gpu()) else []
        with (
            open(path / "err", "wb") as err,
            limited_child(
                command, wall_s=limit_s, env=child_environment(access), stderr=err, cwd=settings.BASE_DIR
            ) as child,
        ):
            for line in islice(child.lines(), MAX_LINES):
                printed.append(line)
                yield from _finding_of(line)
            in_time = child.wait()
        if not in_time:
            sentence = _("The trainer's own checks took longer than %(s)g seconds.") % {"s": limit_s}
            hint = _("A large model may simply need longer to load; this does not stop the launch.")
            yield Check(title, False, sentence, hint, remark=True)
        elif not _is_complete_list(b"\n".join(printed)):
            error = (path / "err").read_bytes()[:2000].decode("utf-8", "replace")
            logger.warning("preflight gave no findings (exit code %s): %s", child.code, error)
            yield _no_trainer()


def _no_trainer() -> Check:
    sentence = _("The trainer's own checks failed to run on this server.")
    return Check(_("Trainer"), False, sentence, _("See the server's log."))


def child_environment(access: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of such a child, with ``access`` to the servers that it has to reach."""
    threads = {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false", "LANG": "C.UTF-8"}
    return child_env(PLACES, MODELS, CERTIFICATES, _OWN_PLACES, **threads, **access_env(access))


def _check_title(name: str) -> str:
    """The title of one of the trainer's checks, in the reader's language."""
    titles = {
        "model": _("Model"),
        "dataset": _("Data"),
        "environment": _("Environment"),
        "slots": _("Sessions"),
        "rewards": _("Rewards"),
        "sampler": _("Sampler"),
        "hardware": _("Hardware"),
        "batch": _("Batch size"),
        "template": _("Chat template"),
        "memory": _("Memory"),
        "trackers": _("Other trackers"),
        "settings": _("Settings"),
    }
    return titles.get(name, name[:80])


def _finding_check(item: dict[str, Any]) -> Check:
    """One finding in the reader's language: our own are sentences, errors from elsewhere have a code."""
    title, ok = _check_title(str(item["check"])), bool(item["ok"])
    plain, hint = str(item.get("message", ""))[:500], str(item.get("hint", ""))[:500]
    stage = str(item.get("stage") or "")[:40]
    error = failure({"code": item.get("code"), "message": plain, "hint": hint}) if item.get("code") else None
    if error is not None:
        return Check(title, ok, error.title, error.hint, detail=error.detail).of(stage)
    message = in_words(item["told"])[:500] if item.get("told") else plain
    path = str(item.get("option") or "")[:80]
    hard, title = item.get("hard") is True, option_title(path) or title
    return Check(title, ok, message, _(hint) if hint else "", hard, path).of(stage)


def _finding_of(line: bytes) -> Iterator[Check]:
    """The finding in one line of the trainer's list, unless it was shown here before."""
    if not line.startswith(b"{"):
        return
    try:
        item: Any = json.loads(line)
        if not (item["ok"] and item["check"] in ASKED_BEFORE):
            yield _finding_check(item)
    except (ValueError, TypeError, KeyError, RecursionError):
        logger.warning("a finding of the preflight cannot be read")
        yield _no_trainer()


def _is_complete_list(output: bytes) -> bool:
    """Whether the trainer's output is a complete JSON list."""
    try:
        return isinstance(json.loads(output), list)
    except (ValueError, RecursionError):
        return False
