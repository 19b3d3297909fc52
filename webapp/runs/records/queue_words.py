"""A run's place in the queue in words, and as an answer: for its page, the lists, live frames, the API and clients.

Other runs are named only to readers who may see their project: ``sees`` are the projects of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.pools import ENDPOINT
from webapp.common.ui import coarse
from webapp.common.workers.models import GIGABYTE, UNREADABLE, Needs, Worker
from webapp.runs.records.queue import Place, Queued, Span, Waiting
from webapp.runs.states import Priority

SHOWN = 3
Line = dict[str, str]
"""``text``, and the address and the words of its link, or empty ones."""


def queue_answer(found: Queued | None, sees: Collection[UUID]) -> dict[str, Any] | None:
    """The fields of ``answers.Queue`` for a reader of these projects; ``None`` for a run that is not queued."""
    if found is None:
        return None
    start, run = found.start, found.run
    title, lines = queue_title(found, sees), queue_lines(found, sees)
    return {
        "place": found.place,
        "ahead": found.ahead,
        "why": found.why,
        "rule": found.rule,
        "seconds": start.seconds if start is not None else None,
        "low": start.low if start is not None else None,
        "high": start.high if start is not None else None,
        "places": len(found.pool.places),
        "holders": [_holder(place, place.run, sees) for place in found.pool.taken if place.run is not None],
        "waits_for": run.after_id if run.blocked else None,
        "short": queue_short(found),
        "title": title,
        "lines": lines,
    }


def _holder(place: Place, run: Waiting, sees: Collection[UUID]) -> dict[str, Any]:
    seen, left = run.project_id in sees, run.left
    return {
        "worker": place.worker,
        "run": run.name if seen else None,
        "run_id": run.pk if seen else None,
        "project": run.project__slug if seen else None,
        "ending": run.ending,
        "seconds": left.seconds if left is not None else None,
        "low": left.low if left is not None else None,
        "high": left.high if left is not None else None,
        "steps_left": run.steps_left if seen and run.total_steps else None,
        "step_seconds": run.pace if seen else None,
        "steps_measured": len(run.measured) if seen else None,
    }


# --- Short ----------------------------------------------------------------------------------------------------------


def queue_short(found: Queued) -> str:
    """One line for a list: the place in line, or what it waits for, and about when it starts."""
    if found.why == "on_hold":
        return _("on hold")
    if found.why == "draining":
        return _("all workers are draining")
    if found.why == "no_fit":
        return _("no worker has what it asks for")
    if found.why in {"no_worker", "worker_problem"}:
        return _("no worker is running") if found.why == "no_worker" else _("no worker may start runs")
    begins = _("starting") if found.why == "starting" else _begins(found)
    if found.why == "limit" and not begins:
        begins = _("its project has no device left")
    if found.why == "sessions" and not begins:
        begins = _("its environment has too few free sessions")
    return " · ".join(filter(None, (_place_words(found), begins)))


def _place_words(found: Queued) -> str:
    if found.place is not None:
        return _nth_in_line(found.place)
    sentences = {
        "after_stopped": _("after %(name)s, which was stopped"),
        "after_paused": _("after %(name)s, which is paused"),
        "after_draft": _("after %(name)s, which was not launched"),
    }
    return sentences.get(found.why, _("after %(name)s")) % {"name": found.run.after__name}


def _nth_in_line(place: int) -> str:
    if place == 1:
        return _("next in line")
    suffixes = {1: _("%(n)sst in line"), 2: _("%(n)snd in line"), 3: _("%(n)srd in line")}
    teen = place % 100 in {11, 12, 13}
    return (_("%(n)sth in line") if teen else suffixes.get(place % 10, _("%(n)sth in line"))) % {"n": place}


def _begins(found: Queued, *, in_full: bool = False) -> str:
    """About when it starts, or at the latest where the length of a run before it is not known; empty if nothing is."""
    if found.start is None:
        return ""
    if found.unknown is not None and 60 <= found.start.high < math.inf:
        return _("at most about %(t)s") % {"t": coarse(found.start.high)}
    return _with_range(found.start) if in_full else _about(found.start)


def _about(span: Span) -> str:
    return _("about %(t)s") % {"t": coarse(span.seconds)} if span.seconds >= 60 else _("less than a minute")


def _with_range(span: Span) -> str:
    """``about 12 min (9 min to 15 min)``; without the range where its ends read the same."""
    low = coarse(span.low) if span.low >= 60 else _("under 1 min")
    high = coarse(span.high) if span.high >= 60 and math.isfinite(span.high) else ""
    if not high or low == high:
        return _about(span)
    return _("%(about)s (%(low)s to %(high)s)") % {"about": _about(span), "low": low, "high": high}


# --- In full --------------------------------------------------------------------------------------------------------


def queue_title(found: Queued, sees: Collection[UUID]) -> str:
    """The first sentence: the place in line, and when it starts or why it does not."""
    values = {"place": _capital(_nth_in_line(found.place or 1)), "name": found.run.after__name}
    values["needs"] = needs_words(Needs.parse(found.run.needs))
    titles = {
        "on_hold": _("On hold: no worker takes this run until an owner of the team releases it."),
        "after": _("Waiting for %(name)s to finish: this run starts from its model."),
        "after_stopped": _("Waiting for %(name)s, which was stopped: resume that one, or stop this one."),
        "after_paused": _("Waiting for %(name)s, which is paused: resume that one, or stop this one."),
        "after_draft": _("Waiting for %(name)s, which was not launched: launch that one, or stop this one."),
        "no_worker": _("%(place)s, but no worker is running."),
        "worker_problem": _("%(place)s, but no worker may start runs."),
        "draining": _draining_title(found),
        "worker_lost": _("%(place)s, but another run's worker has stopped answering."),
        "no_fit": _("Waiting for a worker that has what this run asks for: %(needs)s."),
        "starting": _("%(place)s: a worker is free and is being asked to take this run."),
    }
    if found.why in titles:
        return titles[found.why] % values
    if found.why == "limit" and found.start is None:
        return _("%(place)s, but its project has no device left.") % values
    if found.why == "sessions" and found.start is None:
        return _("%(place)s, but its environment has too few free sessions.") % values
    if found.start is not None:
        return _("%(place)s: starts in %(when)s.") % {**values, "when": _begins(found, in_full=True)}
    if found.unknown is None:
        return _("%(place)s: when it starts is not known yet.") % values
    name = _name_of(found.unknown, sees)
    return _("%(place)s: starts after %(name)s, whose length is not known yet.") % {**values, "name": name}


def _draining_title(found: Queued) -> str:
    workers = found.pool.draining
    text = ngettext(
        "%(place)s, but the only worker of this queue, %(worker)s, is draining.",
        "%(place)s, but all %(n)d workers of this queue are draining.",
        len(workers),
    )
    return text % {
        "place": _capital(_nth_in_line(found.place or 1)),
        "n": len(workers),
        "worker": workers[0].name if workers else "",
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _name_of(run: Waiting, sees: Collection[UUID]) -> str:
    return run.name if run.project_id in sees else _("a run of another project")


def queue_lines(found: Queued, sees: Collection[UUID]) -> list[Line]:
    """What there is to know besides: what to do, which run has each worker, and which runs are ahead."""
    if found.why == "on_hold":
        return []
    if found.why == "no_fit":  # who has the workers does not matter to it
        return _trouble_lines(found, sees)
    lines = [*_start_lines(found), *_trouble_lines(found, sees), *_limit_lines(found, sees)]
    lines += [*_session_lines(found, sees), *_holder_lines(found, sees)]
    if found.next is not None:
        lines += [_line(text) for text in (_rule_text(found, found.next, sees), _ahead_text(found, sees)) if text]
    return lines


def _line(text: str, url: str = "", link: str = "") -> Line:
    return {"text": text, "url": url, "link": link}


def _start_lines(found: Queued) -> list[Line]:
    if found.place is not None or found.start is None:
        return []
    return [_line(_("A worker is expected to take this run in %(when)s.") % {"when": _begins(found, in_full=True)})]


def _trouble_lines(found: Queued, sees: Collection[UUID]) -> list[Line]:
    """What prevents its start, and what to do about it."""
    workers, look = reverse("worker-list"), _("Look at the workers")
    lines = []
    if found.run.needs == UNREADABLE:
        text = _("This version cannot read its config, so it is not known what it asks for: any worker may take it.")
        lines.append(_line(f"{text} {_('Stop it, and launch a new run with a config that can be read.')}"))
    if found.pool.draining:
        count = len(found.pool.draining)
        text = ngettext(
            "%(n)d worker is draining: it finishes what it runs and takes nothing new.",
            "%(n)d workers are draining: they finish what they run and take nothing new.",
            count,
        )
        lines.append(_line(text % {"n": count}, workers, look))
    elif not found.pool.places and found.pool.has_problem:
        lines.append(_line(_("The workers that are alive see another data folder: see their page."), workers, look))
    elif not found.pool.places:
        lines.append(_line(_("Start a worker: the run is taken as soon as one is alive."), workers, look))
    if found.lost is not None:
        text = _("Queued earlier, and first once its lease has ended or its worker answers again: %(name)s.")
        lines.append(_line(text % {"name": _name_of(found.lost, sees)}, workers, look))
    if found.fit_drains:
        lines.append(_line(_("The only workers that have it are draining."), workers, look))
    elif found.why == "no_fit":
        has = [worker_words(worker) for worker in found.pool.living[:SHOWN]]
        lines += [_line(text) for text in has]
        if more := len(found.pool.living) - len(has):
            rest = ngettext("%(n)d more worker does not have it.", "%(n)d more workers do not have it.", more)
            lines.append(_line(rest % {"n": more}))
        lines.append(_line(_("Start a worker that has it, or stop this run and ask for less."), workers, look))
    return lines


def _limit_lines(found: Queued, sees: Collection[UUID]) -> list[Line]:
    """What its project may have at once, where that keeps it from starting."""
    run = found.run
    if found.why != "limit" or run.limit is None:
        return []
    has = found.pool.shares.projects[run.project_id].devices
    values = {"project": _project_of(run, sees), "limit": _devices(run.limit), "n": has, "asks": _devices(run.devices)}
    if run.devices > run.limit:
        text = _("It asks for %(asks)s, and %(project)s may have %(limit)s: ask for fewer, or ask an administrator.")
    else:
        text = _("Of the %(limit)s that %(project)s may have at once it has %(n)s: one of its runs has to end first.")
    return [_line(text % values, reverse("device-usage"), _("Look at the limits"))]


def _session_lines(found: Queued, sees: Collection[UUID]) -> list[Line]:
    """Which of its environments have too few free sessions for it, and for which run they are kept."""
    run, shares = found.run, found.pool.shares
    if found.why != "sessions" or run.project_id not in sees:
        return []
    lines = []
    for environment in shares.lacks(run):
        name, slots = shares.rooms[environment]
        values = {"name": name, "slots": slots, "n": shares.played[environment], "asks": run.plays[environment]}
        if run.plays[environment] > slots:
            text = _(
                "It plays %(asks)d episodes at once, and %(name)s holds %(slots)d: it starts once it can have all of "
                "them. Runs at work have %(n)d."
            )
        else:
            text = _(
                "It plays %(asks)d episodes at once in %(name)s, which holds %(slots)d; runs at work have %(n)d of "
                "them."
            )
        address = reverse("environment-detail", args=[run.project__slug, environment])
        lines.append(_line(text % values, address, _("Look at the environment")))
    if (other := found.pool.kept_for(run)) is not None:
        text = _("The free sessions are kept for %(run)s, which goes first and needs more than are free.")
        lines.append(_line(text % {"run": _name_of(other, sees)}))
    return lines


def needs_words(needs: Needs) -> str:
    """What a run asks of its worker, such as “2 GPUs of 80 GB, H100”."""
    if needs.hosts > 1:
        return _("a Ray cluster with %(n)d hosts") % {"n": needs.hosts}
    text = ngettext("%(n)d GPU", "%(n)d GPUs", needs.gpus) % {"n": needs.gpus}
    if needs.memory:
        text = _("%(gpus)s of %(memory)d GB or more") % {"gpus": text, "memory": needs.memory}
    text = _("%(gpus)s, model %(model)s") % {"gpus": text, "model": needs.model} if needs.model else text
    return _("%(gpus)s, or none at all") % {"gpus": text} if needs.or_cpu else text


def worker_words(worker: Worker) -> str:
    """What a worker has: “gpu0@b has 1 GPU: NVIDIA A100, 86 GB.”"""
    if not worker.gpus:
        return _("%(worker)s has no GPU.") % {"worker": worker.name}
    gpus = ngettext("%(n)d GPU", "%(n)d GPUs", worker.gpus) % {"n": worker.gpus}
    values: dict[str, Any] = {"worker": worker.name, "gpus": gpus, "model": worker.gpu}
    if not worker.gpu or worker.gpu_bytes is None:
        return _("%(worker)s has %(gpus)s, whose model and memory its driver does not report.") % values
    values["memory"] = worker.gpu_bytes // GIGABYTE
    return _("%(worker)s has %(gpus)s: %(model)s, %(memory)s GB.") % values


def _holder_lines(found: Queued, sees: Collection[UUID]) -> list[Line]:
    taken = found.pool.taken
    lines = [_holder_line(place, place.run, sees) for place in taken[:SHOWN] if place.run is not None]
    more = len(taken) - SHOWN
    if more > 0:
        text = ngettext("%(n)d more worker has a run.", "%(n)d more workers have runs.", more) % {"n": more}
        lines.append(_line(text, reverse("worker-list"), _("Look at the workers")))
    return lines


def _holder_line(place: Place, run: Waiting, sees: Collection[UUID]) -> Line:
    values = {"worker": place.worker, "run": _name_of(run, sees), "left": _left_words(run)}
    text = _("%(worker)s has %(run)s: %(left)s.") % values
    if run.project_id not in sees:
        return _line(text)
    text = " ".join(filter(None, (text, _basis(run))))
    return _line(text, reverse("run-detail", args=[run.project__slug, run.pk]), _("Open the run"))


def _left_words(run: Waiting) -> str:
    if run.ending:
        return _("it is ending")
    return _("time left not known yet") if run.left is None else _("%(t)s left") % {"t": _with_range(run.left)}


def _basis(run: Waiting) -> str:
    """What the time left of a run is learned from, or why it is not known."""
    if run.ending:
        return ""
    if run.held is not None:
        return _("Its step waits for something that is away.")
    if run.pace is None:
        return _("It has not finished a step yet.")
    values = {"left": run.steps_left, "pace": _seconds(run.pace), "n": len(run.measured)}
    text = _("Steps left: %(left)s, at %(pace)s each.") % values
    if (found := run.steps_range) is None:
        return text
    low, high = map(_seconds, found)
    last = _("Eight of ten of its last %(n)s steps took %(low)s to %(high)s.") % {**values, "low": low, "high": high}
    return f"{text} {last}"


def _seconds(value: float) -> str:
    return _("%(n)s s") % {"n": f"{value:.3g}"} if value < 60 else coarse(value)


def _rule_text(found: Queued, first: Waiting, sees: Collection[UUID]) -> str:
    """By what the first of the runs ahead goes first; empty where it does so only later."""
    if not found.rule:
        return ""
    run, shares, unit = found.run, found.pool.shares, _places if found.pool.name == ENDPOINT else _devices
    one, other = shares.rank(first), shares.rank(run)
    named = {"run": _name_of(first, sees), "project": _project_of(first, sees), "own": _project_of(run, sees)}
    named |= {"person": _person_of(first, sees), "mine": _person_of(run, sees)}
    devices, spent = _("%(a)s has %(n)s in use, %(b)s %(m)s."), _("%(a)s used %(n)s in the last 24 h, %(b)s %(m)s.")
    projects, people = {"a": named["project"], "b": named["own"]}, {"a": named["person"], "b": named["mine"]}
    sentences = {
        "priority": _("the priority of %(run)s is %(high)s, that of this run %(low)s.")
        % {**named, "high": Priority(first.priority).label, "low": Priority(run.priority).label},
        "put_first": _("an owner put %(run)s first.") % named,
        "overdue": _("%(run)s has waited for over 24 h.") % named,
        "project_devices": devices % {**projects, "n": unit(one.project_devices), "m": other.project_devices},
        "project_minutes": spent % {**projects, "n": _time(one.project_minutes), "m": _time(other.project_minutes)},
        "person_devices": devices % {**people, "n": unit(one.person_devices), "m": other.person_devices},
        "person_minutes": spent % {**people, "n": _time(one.person_minutes), "m": _time(other.person_minutes)},
    }
    ahead = found.ahead or 0
    text = ngettext("Waits behind %(n)d run: %(why)s", "Waits behind %(n)d runs: %(why)s", ahead)
    return text % {"n": ahead, "why": sentences.get(found.rule, _("%(run)s was queued earlier.") % named)}


def _devices(count: int) -> str:
    return ngettext("%(n)d device", "%(n)d devices", count) % {"n": count}


def _places(count: int) -> str:
    return ngettext("%(n)d place", "%(n)d places", count) % {"n": count}


def _time(minutes: int) -> str:
    return coarse(minutes * 60) if minutes else _("under 1 min")


def _project_of(run: Waiting, sees: Collection[UUID]) -> str:
    return _("project %(name)s") % {"name": run.project__name} if run.project_id in sees else _("another project")


def _person_of(run: Waiting, sees: Collection[UUID]) -> str:
    if run.project_id not in sees:
        return _("a person of another project")
    return run.created_by__username or _("a person whose account is gone")


def _ahead_text(found: Queued, sees: Collection[UUID]) -> str:
    before = found.pool.before(found.run)
    names = [_ahead_name(run, sees) for run in before[:SHOWN]]
    text = _("Ahead: %(runs)s.") % {"runs": _(", ").join(names)}
    more = len(before) - SHOWN
    if more <= 0:
        return text
    rest = ngettext("And %(n)d more run.", "And %(n)d more runs.", more) % {"n": more}
    return f"{text} {rest}"


def _ahead_name(run: Waiting, sees: Collection[UUID]) -> str:
    values = {"run": _name_of(run, sees), "t": _about(run.left) if run.left is not None else ""}
    return (_("%(run)s (%(t)s)") if run.left is not None else _("%(run)s (length not known)")) % values
