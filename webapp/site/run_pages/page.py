"""The first contents of the run page; the socket updates them from then on."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from training.config import (
    ENDPOINT_TILES,
    METHODS,
    CurriculumConfig,
    JobConfig,
    MixConfig,
    RewardComponent,
    config_to_yaml,
)
from training.errors import ConfigError
from training.metrics import METRICS
from training.rewards.custom import CUSTOM, code_hash
from webapp.common.answers import in_shape
from webapp.common.static_files import PLOTLY
from webapp.common.storage import attempt_dir
from webapp.common.text import duration, figure, percent, translated
from webapp.engine.recovery import promise
from webapp.engine.resolve import components_meant
from webapp.engine.services import RESUMABLE, GoingOn, disk_text, fault_text
from webapp.engine.trainer import output_tail
from webapp.foreign.figure_files import has_ended
from webapp.foreign.importing import import_report
from webapp.live.feed import CURVES_ASKED_MAX
from webapp.runs import answers
from webapp.runs.config import Changed, all_components, component_titles, config_of, differences, of_step, stack_weights
from webapp.runs.metrics.selectors import metric_names, newest_values
from webapp.runs.models import Run, RunEvent
from webapp.runs.removal.models import Kept
from webapp.runs.removal.selectors import expiry_of, removed_sentence
from webapp.runs.reports import COURSE_KINDS, event_words
from webapp.runs.states import TERMINAL, RunState, sources_of
from webapp.site.run_pages.flight import environment_of, paint

EVENTS_PAGE = 200
LOG = ("log",)
LOG_LINES = 200  # lines of the page, and of each older part
OWN_CURVES_MAX = 60
SPARK_VALUES = 48  # as `sparkLines` of static/js/lib/series.js
ENVIRONMENTS_OWN = "task_success"  # the reward component that passes the environment's reward on
TABS = ("curves", "log", "config", "events")
ACT_STATES = {
    "stop": frozenset(RunState) - TERMINAL - {RunState.STOPPING},
    "pause": frozenset(sources_of(RunState.PAUSING)),
    "resume": RESUMABLE,
}
"""The states in which a run may be stopped, paused or resumed. A page hides the other buttons at once; whether there is
something to resume from is known here alone."""
SILENT_TTLS = 1.5  # a worker that was silent for so many times of a lease's life is about to be replaced
FORMATS = {"figure": figure, "percent": percent, "duration": duration}


class Tile(NamedTuple):
    """One figure of the page's head, with its last values."""

    name: str
    label: str
    kind: str
    text: str
    about: str
    values: list[float | None]


def _own_curves(run: Run) -> list[str]:
    """Charts of a foreign run besides those that every run has: metrics under names that only its trainer uses."""
    if not run.imported_from:
        return []
    known = set(import_report(run).get("mapped", {}))
    return [name for name in metric_names(run) if name not in known][:OWN_CURVES_MAX]


def tiles(run: Run) -> list[Tile]:
    """The tiles of a run, with or without figures yet; a foreign run has only those of its own figures."""
    found = newest_values(run, run.method.tiles, SPARK_VALUES)
    made = []
    for name in _shown_tiles(run):
        entry = METRICS[name]
        values = found.get(name, [])
        last = next((value for value in reversed(values) if value is not None), None)
        if values or not run.imported_from:
            made.append(
                Tile(
                    name, translated(entry.title), entry.form, FORMATS[entry.form](last), translated(entry.what), values
                )
            )
    return made


def _shown_tiles(run: Run) -> list[str]:
    """The method's tiles, without those that its config leaves out: the KL divergence where no weight on it makes the
    trainer compute it, held-out figures where nothing is held out, and uncountable use of an endpoint."""
    config = config_of(run)
    without_kl = config is not None and not run.imported_from and run.method.trains and not config.gradient.beta
    hidden = {"kl"} if without_kl else set()
    if config is None or not config.sft.held_out_share:
        hidden.add("heldout/loss")
    if config is None or not config.evaluate.every:
        hidden.add("heldout/success")
    if config is None or not config.asks_endpoint:
        hidden |= set(ENDPOINT_TILES)
    elif not config.endpoint.priced:
        hidden.add("endpoint/cost")
    return [name for name in run.method.tiles if name not in hidden]


# What is on the server, once resolved.
PLACES = ("data.train", "evaluate.data", "model.source", "environment.url", "environment.replicas")


def config_texts(run: Run, *, places: bool = True) -> dict[str, str]:
    """The config as YAML: all of it, and only what differs from the defaults. Without ``places`` its references are
    shown instead of the server's folders and addresses that they meant at launch."""
    config = config_of(run)
    if config is None:
        return {"all": "", "changed": ""}
    if not places and run.resolved:
        config = config.model_copy(deep=True)
        for path in PLACES:
            group, _dot, option = path.partition(".")
            if option in run.config.get(group, {}):
                setattr(getattr(config, group), option, run.config[group][option])
        if stages := run.config.get("curriculum", {}).get("stages"):
            config = config.model_copy(update={"curriculum": CurriculumConfig(stages=stages)})
        if parts := run.config.get("mix", {}).get("parts"):
            config = config.model_copy(update={"mix": MixConfig(parts=parts)})
    return {"all": config_to_yaml(config), "changed": config_to_yaml(config, only_changed=True)}


def changed_options(run: Run) -> list[Changed]:
    """The options that a child changed."""
    return differences(run.parent.config, run.config) if run.parent is not None else []


def custom_code(run: Run) -> list[tuple[str, str]]:
    """The run's components that are Python of its team, each with the SHA-256 of its code."""
    config = config_of(run)
    parts = all_components(config)
    return [(part.name, code_hash(str(part.params.get("code", "")))) for part in parts if part.registered == CUSTOM]


def page_data(run: Run, urls: dict[str, str], tab: str) -> dict[str, Any]:
    """The data for the page's script besides the frames."""
    job = config_of(run)
    config = of_step(run, job, run.step + 1) if job is not None else None
    components = _components_of(run, job)
    weights = {item.name: item.weight for item in components}
    expected = config.rollouts_per_step if config and run.method.plays else None
    return {
        "id": str(run.pk),
        "name": run.name,
        "kind": run.kind,
        "project": run.project.slug,
        "api": "/api/v1",
        "runs": reverse("run-list", args=[run.project.slug]),
        "csv": reverse("run-curves-csv", args=[run.project.slug, run.pk]),
        "training": [name for name, method in METHODS.items() if method.trains],
        "tab": tab,
        "socket": f"/ws/runs/{run.pk}/",
        "seq": run.seq,
        "step": run.step,
        "language": get_language() or "",
        "urls": urls,
        "components": component_titles(components),
        "stack": stack_weights(job),
        "imported": bool(run.imported_from),
        "per_step": expected,
        "group_size": config.group_size if config and run.method.plays else None,
        "environment": environment_of(config),
        "baselines": _baseline_lines(run, list(weights.items())),
        "own_curves": _own_curves(run),
        "tiles": {name: METRICS[name].form for name in _shown_tiles(run)},
        "curves": list(run.method.curves),
        **_leading(run),
        "terminal": sorted(TERMINAL),
        "acts": {act: sorted(states) for act, states in ACT_STATES.items()},
        "stall_after": settings.STALL_AFTER_S,
        "silent_after": SILENT_TTLS * settings.LEASE_TTL_S,
        "flight": paint(),
        "curves_at_once": CURVES_ASKED_MAX,
        "plotly": static(PLOTLY),
    }


def _leading(run: Run) -> dict[str, Any]:
    """The charts of which the first that there is is drawn large, the metric that is faintly behind it, and the metrics
    that are shares."""
    behind = "reward" if run.method.learns_from == "rollouts" else ""
    shares = [name for name, entry in METRICS.items() if entry.form == "percent"]
    return {"leads": list(run.method.leads), "behind": behind, "shares": shares}


def has_rollouts(run: Run) -> bool:
    """Whether the run has rollouts, or will have."""
    return run.method.plays and not (run.imported_from and not run.rollouts.exists())


def _components_of(run: Run, config: JobConfig | None) -> list[RewardComponent]:
    """The reward components of the run and its stages; before a worker has it, those of its spec now."""
    courses = config.courses if config is not None and run.method.plays else []
    try:
        parts = [part for course in courses for part in components_meant(run.project, course)]
        return list({part.name: part for part in parts}.values())
    except ConfigError:
        return []  # the launch check reports the fault


def _baseline_lines(run: Run, weights: list[tuple[str, float]]) -> dict[str, list[dict[str, Any]]]:
    """Dashed lines by chart. A baseline is the environment's own reward, which is the chart ``reward`` only where
    nothing else is rewarded; its success rate is always that of ``rollouts/task_success``."""
    success = [{"name": item["name"], "y": item["success"]} for item in run.baselines]
    lines = {"rollouts/task_success": success, "success": success}
    if weights == [(ENVIRONMENTS_OWN, 1.0)]:
        lines["reward"] = [{"name": item["name"], "y": item["reward"]} for item in run.baselines]
    if ENVIRONMENTS_OWN in dict(weights):
        lines["components"] = [{"name": item["name"], "y": item["reward"]} for item in run.baselines]
    return {key: items for key, items in lines.items() if items}


def actions(going_on: GoingOn, *, editor: bool) -> dict[str, bool]:
    """The acts that the reader may do on the run now."""
    run = going_on.run
    state = RunState(run.state)
    return {
        "act": editor and state not in TERMINAL,
        "stop": editor and state in ACT_STATES["stop"],
        "pause": editor and state in ACT_STATES["pause"],
        "resume": editor and going_on.can_resume,
        "branch": editor and going_on.branch_point is not None,
        "clone": editor and not run.imported_from,  # its config is not known
        "export": has_ended(run) and run.step > 0,
        "pairs": editor and run.method.plays and has_ended(run) and run.step > 0 and not run.imported_from,
        "lab": run.method.plays and run.step > 0,
        "evaluate": editor and run.method.trains and state == RunState.SUCCEEDED and not run.imported_from,
    }


def next_act(going_on: GoingOn) -> str:
    """The next act for a run that paused or ended: whether it resumes by itself, and what its button does."""
    return " ".join(filter(None, (promise(going_on.run), _next_act(going_on))))


def _next_act(going_on: GoingOn) -> str:
    run = going_on.run
    if run.imported or run.state not in RESUMABLE:
        return ""
    if run.error and run.error.get("code") == "storage_full" and run.state == RunState.PAUSED:
        return disk_text()
    if run.error and run.error.get("code") == "storage_failed" and run.state == RunState.PAUSED:
        return fault_text()
    if not going_on.can_resume and (removed := expiry_of(run, Kept.CHECKPOINTS)) is not None:
        return _("%(removed)s It cannot be resumed: clone it to start again.") % {"removed": removed_sentence(removed)}
    if not going_on.can_resume:
        return _("No checkpoint was saved before it ended, so it cannot be resumed: clone it to start again.")
    found = going_on.newest
    if found is not None:
        place = {"step": found.step, "attempt": found.attempt}
        begins = _("Resume continues from the checkpoint of step %(step)s, attempt %(attempt)s.") % place
        return f"{begins} {_repeated_steps_text(run, found.step)}".strip()
    if run.resume_step is not None:
        begins = _("Resume continues from the parent's checkpoint of step %(step)s.") % {"step": run.resume_step}
        return f"{begins} {_repeated_steps_text(run, run.resume_step)}".strip()
    if not run.method.trains and run.step:
        return _("Resume continues after step %(step)s.") % {"step": run.step}
    return f"{_('No checkpoint was saved, so Resume begins at step 0.')} {_repeated_steps_text(run, 0)}".strip()


def _repeated_steps_text(run: Run, saved: int) -> str:
    """A sentence on steps that were trained and not saved; empty where none was."""
    lost = run.step - saved
    if not run.method.trains or lost <= 0:
        return ""
    return ngettext(
        "Step %(last)s was not saved and is trained again.",
        "Steps %(first)s to %(last)s were not saved and are trained again.",
        lost,
    ) % {"first": saved + 1, "last": run.step}


def events_before(run: Run, before: int | None) -> tuple[list[dict[str, Any]], int | None]:
    """A page of events that changed the run's course, newest first, and the ``seq`` of an older page (``None``:
    none)."""
    return _course_lines(list(_newest_events(run, COURSE_KINDS, EVENTS_PAGE + 1, before)))


def log_before(run: Run, before: int | None = None) -> tuple[list[str], int | None]:
    """A part of the log as a page shows it, oldest line first, and the ``seq`` of an older part (``None``: none).

    Events are not in it: they have a tab of their own."""
    return _log_lines(list(_newest_events(run, LOG, LOG_LINES + 1, before)))


def course_and_log(run: Run) -> tuple[tuple[list[dict[str, Any]], int | None], tuple[list[str], int | None]]:
    """The newest page of events and the newest part of the log, in one query."""
    log = _newest_events(run, LOG, LOG_LINES + 1)
    found = list(_newest_events(run, COURSE_KINDS, EVENTS_PAGE + 1).union(log, all=True).order_by("-seq"))
    return _course_lines([event for event in found if event.kind not in LOG]), _log_lines(
        [e for e in found if e.kind in LOG]
    )


def _newest_events(run: Run, kinds: tuple[str, ...], limit: int, before: int | None = None) -> QuerySet[RunEvent]:
    found = RunEvent.objects.filter(run=run, kind__in=kinds).order_by("-seq")
    if before is not None:
        found = found.filter(seq__lt=before)
    return found[:limit]


def _course_lines(found: list[RunEvent]) -> tuple[list[dict[str, Any]], int | None]:
    older = found[EVENTS_PAGE - 1].seq if len(found) > EVENTS_PAGE else None
    return in_shape(list[answers.Event], found[:EVENTS_PAGE]), older


def _log_lines(found: list[RunEvent]) -> tuple[list[str], int | None]:
    older = found[LOG_LINES - 1].seq if len(found) > LOG_LINES else None
    return [log_line(event) for event in reversed(found[:LOG_LINES])], older


def log_file(run: Run, limit: int = 50_000) -> list[str]:
    """Messages and events in one order, for the file that is downloaded."""
    return [log_line(event) for event in reversed(_newest_events(run, (*LOG, *COURSE_KINDS), limit))]


def log_line(event: RunEvent) -> str:
    """One event as a line of text; ``static/js/lib/log.js`` makes the same of those that it adds."""
    kind = f"{event.kind} " if event.kind in {"state", "attempt", "warning"} else ""
    words = event_words({"kind": event.kind, "payload": event.payload, "attempt": event.attempt})
    return f"{event.at.isoformat(' ', 'seconds')[:19]}  {kind}{words}"


def trainer_output(run: Run) -> list[str]:
    """The last lines that the trainer's process printed."""
    return output_tail(attempt_dir(run.pk, run.attempt)) if run.attempt else []
