"""The card that the page of an ended run begins with: a fact a cell, and the one act that the page recommends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.text import NOTHING, duration, figure, percent
from webapp.launch.learned import Overlap
from webapp.results.summary import REWARD, SUCCESS, Best, Cost, Gain, HeldOut, Summary
from webapp.runs.models import Run
from webapp.runs.states import RunState


class Act(NamedTuple):
    """A link of a fact."""

    label: str
    url: str
    id: str = ""
    download: bool = False


class Fact(NamedTuple):
    """A cell. ``note`` is shown small next to the value, which ``link`` makes a link."""

    key: str
    title: str
    value: str
    note: str = ""
    about: str = ""
    acts: tuple[Act, ...] = ()
    tag: str = ""
    link: str = ""


class Reader(NamedTuple):
    """The reader's rights, with the addresses that the page has made anyway; ``next_act`` is the sentence of a run that
    paused or did not succeed."""

    can: dict[str, bool]
    editor: bool
    evaluate_url: str
    chat_url: str
    clone_url: str = ""
    next_act: str = ""


class Next(NamedTuple):
    """One thing to do: why, and the button that begins it; without ``label`` the reader may not. ``posts``: the button
    changes the run at once."""

    code: str
    sentence: str
    label: str
    url: str
    icon: str = ""
    posts: bool = False


def next_steps(run: Run, found: Summary, reader: Reader) -> list[Next]:
    """What to do next: the first is recommended, the others are a click further.

    First what continues a run that did not succeed, then its evaluation where nothing was held out, then the other
    advice, then the model, and a comparison where there is nothing else."""
    steps = [_continue_step(run, reader)] if reader.next_act else []
    advice = sorted(found.advice, key=lambda item: item.code != "evaluate")
    steps += [Next(item.code, item.sentence, item.label, item.url) for item in advice]
    return steps or [_model_step(run, found, reader) or _compare_step(run)]


def _continue_step(run: Run, reader: Reader) -> Next:
    if reader.can["resume"]:
        url = reverse("run-resume", args=[run.project.slug, run.pk])
        return Next("resume", reader.next_act, _("Resume"), url, "play", posts=True)
    if reader.can["clone"] and reader.clone_url:
        return Next("clone", reader.next_act, _("Clone"), reader.clone_url, "copy")
    return Next("wait", reader.next_act, "", "")


def _model_step(run: Run, found: Summary, reader: Reader) -> Next | None:
    made = found.made
    if made is None:
        return None
    if made.compare_url:
        return Next("base", _("See how far it is above the model that it began with."), _("Compare with its base"),
                    made.compare_url, "compare")  # fmt: skip
    if made.model is None and reader.editor:
        why = _("Registered models can be compared, chatted with and served.")
        return Next("register", why, _("Register the model"), _register_url(run, made.checkpoint.pk), "models")
    return None


def _compare_step(run: Run) -> Next:
    url = f"{reverse('compare', args=[run.project.slug])}?c={run.pk}"
    return Next("compare", _("See it next to other runs of the project."), _("Compare"), url, "compare")


def _register_url(run: Run, checkpoint: object, name: str = "") -> str:
    asked = {"kind": "run", "checkpoint": checkpoint, "name": name or run.name}
    return f"{reverse('model-new', args=[run.project.slug])}?{urlencode(asked)}"


def facts_of(run: Run, found: Summary, reader: Reader) -> list[Fact]:
    """The cells of the card, the most important first."""
    learns, plays = run.method.trains, run.method.plays
    if learns and not found.gains and run.state != RunState.SUCCEEDED:  # without steps these facts are empty
        return [
            Fact("figures", _("Figures"), NOTHING, about=_("No step was trained to its end.")),
            _cost_fact(run, found.cost),
        ]
    facts = [_gain_fact(run, gain, reader) for gain in found.gains]
    if found.best is not None:
        facts.append(_best_fact(run, found.best, reader))
    if learns and plays:
        facts.append(_held_out(run, found, reader))
    facts.append(_cost_fact(run, found.cost))
    if learns and not run.imported_from:
        facts.append(_model_fact(run, found, reader))
    if learns and plays:
        facts.append(_advisories_fact(found))
    return facts


def _gain_fact(run: Run, gain: Gain, reader: Reader) -> Fact:
    before, after = gain.texts
    words = ngettext(
        "the first and the last of %(of)s steps", "means of the first %(n)s and the last %(n)s of %(of)s steps",
        gain.steps,
    )  # fmt: skip
    acts: tuple[Act, ...] = ()
    if gain.name == SUCCESS:
        acts = (Act(_("Task by task"), reverse("run-tasks", args=[run.project.slug, run.pk])),)
    elif gain.name == REWARD and reader.can["lab"]:
        acts = (Act(_("Open in the lab"), f"{reverse('lab', args=[run.project.slug])}?run={run.pk}"),)
    about = words % {"n": gain.steps, "of": gain.of} if gain.before is not None else _("of one step")
    value = f"{before} → {after}" if gain.before is not None else after
    return Fact(gain.name, gain.title, value, about=about, acts=acts)


def _best_fact(run: Run, best: Best, reader: Reader) -> Fact:
    return Fact(
        "best", _("Best step"), str(best.step), best.text,
        " · ".join([_reason_of_best(best), *_certainty_texts(best), _weights_text(best)]),
        tuple(_best_acts(run, best)) if reader.editor else (),
    )  # fmt: skip


def certainty_text(tries: int, low: float | None, high: float | None, *, tasks: bool) -> str:
    """How many tasks or rollouts a share is of, and its interval; empty where that is not known."""
    if not tries or low is None or high is None:
        return ""
    words = _("%(n)s tasks, 95%%: %(low)s – %(high)s") if tasks else _("%(n)s rollouts, 95%%: %(low)s – %(high)s")
    return words % {"n": f"{tries:,}", "low": percent(low), "high": percent(high)}


def _certainty_texts(best: Best) -> Iterator[str]:
    """How certain the figure is: what it is a share of, its interval, and of how many it is the highest."""
    if text := certainty_text(best.tries, best.low, best.high, tasks=best.held_out):
        yield text
    if best.of > 1:
        yield _("the highest of %(of)s such means, so partly luck") % {"of": best.of}


def _reason_of_best(best: Best) -> str:
    if best.held_out:
        return _("by success on held-out tasks")
    if best.metric == SUCCESS:
        words = ngettext("by the success of one step", "by the mean success of %(n)s steps", best.window)
    else:
        words = ngettext(
            "by the reward of one step, as nothing judged the tasks",
            "by the mean reward of %(n)s steps, as nothing judged the tasks",
            best.window,
        )
    return words % {"n": best.window}


def _weights_text(best: Best) -> str:
    found = best.checkpoint
    if found is None:
        return _("no checkpoint was kept")
    if not best.kept:
        return _("no weights of it were kept, the nearest are of step %(step)s") % {"step": found.step}
    if found.final:
        return _("its weights: the finished model, of step %(step)s") % {"step": found.step}
    return _("its weights: the checkpoint of step %(step)s") % {"step": found.step}


def _best_acts(run: Run, best: Best) -> Iterator[Act]:
    found, slug = best.checkpoint, run.project.slug
    if found is None or found.final or not best.kept:  # the model has a cell of its own
        return
    chat = {"model": found.reference}
    yield Act(_("Chat"), f"{reverse('chat-new', args=[slug])}?{urlencode(chat)}")
    yield Act(_("Register it"), _register_url(run, found.pk, f"{run.name[:70]}-{found.step}"))


def _held_out(run: Run, found: Summary, reader: Reader) -> Fact:
    title, held = _("Held-out success"), found.held_out
    url = found.made.evaluate_url if found.made is not None else reader.evaluate_url
    proposed = any(each.code == "evaluate" for each in found.advice)  # which has the button
    evaluate = (Act(_("Evaluate"), url, "run-evaluate"),) if reader.can["evaluate"] and not proposed else ()
    if held is None:
        why = _("Nothing was held out. Evaluate every and Held-out share in the config give this figure.")
        if reader.can["evaluate"]:
            why = _("Not evaluated yet: evaluate the model on tasks that it did not learn from.")
        return Fact("held-out", title, NOTHING, about=why, acts=evaluate)
    if held.trained_on:
        title = _learned_title(held.overlap)
    value, low, high = held.texts
    rollouts: tuple[Act, ...] = ()
    if held.step is not None:
        address = reverse("run-held-out-step", args=[run.project.slug, run.pk, held.step])
        rollouts = (Act(_("Its rollouts"), address),)
    return Fact(
        "held-out", title, value, f"{low} – {high}" if held.low is not None else "", _tasks_text(held),
        (*rollouts, *evaluate), link=reverse("run-detail", args=[run.project.slug, held.run.pk]) if held.run else "",
    )  # fmt: skip


def _learned_title(overlap: Overlap) -> str:
    """A title for a figure over tasks that were learned from."""
    counts = {"seen": overlap.seen, "tasks": overlap.tasks}
    if overlap.seen is None:
        return _("Success on tasks it learned from")
    if overlap.seen == overlap.tasks:
        return _("Success on %(seen)d of %(tasks)d tasks that it learned from") % counts
    return _("Success; it learned from %(seen)d of these %(tasks)d tasks") % counts


def _tasks_text(held: HeldOut) -> str:
    """The number of the tasks, and the run that played them."""
    many = ngettext("%(n)s task", "%(n)s tasks", held.tasks) % {"n": held.tasks} if held.tasks else ""
    by = held.run.name if held.run else _("after step %(step)s, the best one") % {"step": held.step}
    warning = _("this says little about other tasks") if held.trained_on else ""
    return " · ".join(part for part in (many, by, held.overlap.words, warning) if part)


def _cost_fact(run: Run, cost: Cost) -> Fact:
    if cost.device_seconds is None and not run.imported_from:
        return Fact("cost", _("Cost"), NOTHING, about=_("No worker ran it."))
    parts = [ngettext("%(n)s attempt", "%(n)s attempts", cost.attempts) % {"n": cost.attempts}]
    if cost.device_seconds is None:
        parts = [_("its files do not show for how long it held a device")]
    if cost.tokens is not None:
        parts.append(_("about %(n)s tokens sampled") % {"n": rounded(cost.tokens)})
    if cost.judge_requests is not None:
        number = int(cost.judge_requests)
        parts.append(ngettext("%(n)s judge request", "%(n)s judge requests", number) % {"n": rounded(number)})
    if cost.judge_cost:
        parts.append(_("%(money)s for judges at the prices that are set") % {"money": figure(cost.judge_cost)})
    device = {"cpu": "CPU", "cuda": "GPU"}.get(cost.device.partition(":")[0], cost.device)
    if cost.device_seconds is None:
        return Fact("cost", _("Cost"), NOTHING, about=" · ".join(parts))
    return Fact("cost", _("Cost"), duration(cost.device_seconds), device, " · ".join(parts))


def rounded(number: float) -> str:
    """Three digits of a count, and zeros: 1,230,000."""
    digits = max(0, len(str(int(number))) - 3)
    return f"{round(number, -digits):,.0f}"


def _model_fact(run: Run, found: Summary, reader: Reader) -> Fact:
    made, title = found.made, _("Model")
    if made is None:
        gone = run.state == RunState.SUCCEEDED
        why = _("Its finished model is not here.") if gone else _("A run that succeeds leaves a finished model.")
        return Fact("model", title, NOTHING, about=why)
    slug, item = run.project.slug, made.model
    about = f"{_('step %(step)s') % {'step': made.checkpoint.step}} · {filesizeformat(made.checkpoint.bytes)}"
    acts: list[Act] = []
    if item is not None:
        acts.append(Act(_("Download"), f"/api/v1/models/{item.pk}/download", download=True))
    elif reader.editor:
        acts.append(Act(_("Register the model"), _register_url(run, made.checkpoint.pk)))
    if made.compare_url:
        acts.append(Act(_("Compare with its base"), made.compare_url))
    if reader.can["evaluate"]:
        acts.append(Act(_("Chat"), reader.chat_url, "run-chat"))
    if item is None:
        return Fact("model", title, _("not registered yet"), about=about, acts=tuple(acts))
    return Fact(
        "model", title, item.name, about=about, acts=tuple(acts), tag=item.get_mark_display() if item.mark else "",
        link=reverse("model-detail", args=[slug, item.pk]),
    )  # fmt: skip


def _advisories_fact(found: Summary) -> Fact:
    title, still = _("Advisories"), found.advisories
    if not still:
        return Fact("advisories", title, _("none open"))
    worst = _("the most severe: %(title)s") % {"title": still[0].title}
    many = ngettext("%(n)s open", "%(n)s open", len(still)) % {"n": len(still)}
    return Fact("advisories", title, many, about=worst, acts=(Act(_("Read them"), "#advisories-open"),))


def replaced_tiles(found: Summary) -> set[str]:
    """Tiles that the card replaces: for an ended run the card says more than the last step's figure."""
    names = {gain.name for gain in found.gains}
    return names | {"heldout/success"} if found.held_out is not None else names


def context_of(run: Run, found: Summary, reader: Reader) -> dict[str, Any]:
    """The context of the card's template; ``lab_in_card``: it has the button of the lab."""
    lab = reader.can["lab"] and REWARD in {gain.name for gain in found.gains}
    steps = next_steps(run, found, reader)
    facts = [_without(fact, steps[0].url) for fact in facts_of(run, found, reader)]
    return {"summary": found, "facts": facts, "next": steps[0], "more": steps[1:], "lab_in_card": lab}


def _without(fact: Fact, url: str) -> Fact:
    """The fact without the link that the recommended button has."""
    return fact._replace(acts=tuple(act for act in fact.acts if act.url != url))
