"""Sentences on components that evaluations did not record: which were computed, which are missing, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import RewardComponent
from webapp.common.text import in_words
from webapp.evaluation.rescoring.scale import Lack, Lacks
from webapp.runs.config import component_titles

REASONS_TOLD = 3
Told = Sequence[tuple[str, Lacks]]


def computed_sentences(components: Sequence[RewardComponent], told: Told) -> list[str]:
    """For each run by name: which components were computed from its transcripts."""
    titles = component_titles(components)
    sentences = []
    for run, lacks in told:
        computed = {titles[name]: lack.computed for name, lack in lacks.by_name.items() if lack.computed}
        if computed:
            values = {"run": run, "names": ", ".join(computed), "n": f"{max(computed.values()):,}"}
            sentences.append(
                ngettext(
                    "%(run)s: %(names)s computed from the transcript of %(n)s rollout.",
                    "%(run)s: %(names)s computed from the transcripts of %(n)s rollouts.",
                    max(computed.values()),
                )
                % values
            )
    return sentences


def missing_sentences(components: Sequence[RewardComponent], told: Told) -> list[str]:
    """For each run by name: which components have no value in how many rollouts, and why."""
    titles = component_titles(components)
    sentences = []
    for run, lacks in told:
        if unseen := [titles[name] for name, lack in lacks.by_name.items() if lack.unscored and not _has_begun(lack)]:
            sentences.append(
                _("%(run)s has not recorded %(names)s with these parameters, so it has no reward under this spec.")
                % {"run": run, "names": ", ".join(unseen)}
            )
        for name, lack in lacks.by_name.items():
            sentences += _component_sentences(run, titles[name], lack) if _has_begun(lack) else []
    return sentences


def _has_begun(lack: Lack) -> bool:
    return bool(lack.computed or lack.failed)


def _component_sentences(run: str, title: str, lack: Lack) -> list[str]:
    sentences = []
    if lack.unscored:
        sentences.append(
            _with_count(
                ngettext(
                    "%(run)s: %(n)s rollout has not been scored by %(name)s yet.",
                    "%(run)s: %(n)s rollouts have not been scored by %(name)s yet.",
                    lack.unscored,
                ),
                {"run": run, "name": title},
                lack.unscored,
            )
        )
    for reason, count in lack.failed.most_common(REASONS_TOLD):
        text = ngettext(
            "%(run)s: %(n)s rollout has no value of %(name)s: %(reason)s",
            "%(run)s: %(n)s rollouts have no value of %(name)s: %(reason)s",
            count,
        )
        sentences.append(_with_count(text, {"run": run, "name": title, "reason": in_words(reason)}, count))
    rest = sum(count for _reason, count in lack.failed.most_common()[REASONS_TOLD:])
    if rest:
        text = ngettext(
            "%(run)s: %(n)s more rollout has no value of %(name)s, for another reason.",
            "%(run)s: %(n)s more rollouts have no value of %(name)s, for other reasons.",
            rest,
        )
        sentences.append(_with_count(text, {"run": run, "name": title}, rest))
    return sentences


def _with_count(text: str, values: Mapping[str, str], count: int) -> str:
    return text % {**values, "n": f"{count:,}"}
