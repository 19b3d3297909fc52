"""The model card: facts from the database as Markdown, and between them what the team wrote itself.

The same rows always give the same text: it has no time of writing, and what no row says is "not recorded".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.utils.translation import gettext as _

from training.config import JobConfig
from training.metrics import METRICS
from webapp.common.text import duration, figure, percent, translated
from webapp.results.lineage import (
    Fact,
    Origins,
    Score,
    Stage,
    base_words,
    components_of,
    origins_of,
    revision_of,
    scores,
    trained_on,
    tries_words,
)
from webapp.runs.config import config_of, title_of
from webapp.runs.metrics.selectors import values_at
from webapp.runs.models import Run
from webapp.runs.registry.models import ModelKind, RegisteredModel
from webapp.runs.registry.selectors import SECTIONS

SHOWN_AS = {"figure": figure, "percent": percent, "duration": duration}


def card_of(model: RegisteredModel) -> str:
    """The card of a model, read from the database."""
    origins = origins_of(model)
    return card_text(model, origins, scores(model, origins))


def card_text(model: RegisteredModel, origins: Origins, found: Sequence[Score]) -> str:
    """The card as one Markdown text."""
    parts = [
        _front_matter(model, origins),
        f"# {model.name}",
        _("Facts are written by Tiltyard from what its runs recorded; other sections are the team's own words."),
        _own_section(model, "intended_use"),
        _about_section(model, origins),
        *_training_sections(model, origins),
        _evaluation_section(found),
        _limits_section(found),
        _own_section(model, "limitations"),
        _own_section(model, "licence"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def not_recorded() -> str:
    """The word for a fact that no row has."""
    return _("not recorded")


def _front_matter(model: RegisteredModel, origins: Origins) -> str:
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if origins.stages and origins.base is not None and origins.base.kind == ModelKind.HUB:
        lines.append(f"base_model: {origins.base.name}")
    if model.tags:
        lines += ["tags:", *(f'  - "{tag}"' for tag in model.tags)]
    return "\n".join([*lines, "---"])


def _own_section(model: RegisteredModel, section: str) -> str:
    return f"## {SECTIONS[section]}\n\n{model.card.get(section) or not_recorded()}"


def _about_section(model: RegisteredModel, origins: Origins) -> str:
    checkpoint = model.checkpoint
    weights: str = model.source or not_recorded()
    if checkpoint is not None:
        weights = _("run %(run)s, step %(step)s") % {"run": checkpoint.run.name, "step": checkpoint.step}
        weights += f" ({_('final')})" if checkpoint.final else ""
    base, about = base_words(origins.base, cut=origins.cut)
    facts = [
        Fact(_("Weights"), weights),
        Fact(_("Base model"), base if origins.base is None else f"{base} ({about})"),
        Fact(_("Revision of the base model"), revision_of(origins)),
        Fact(_("Registered"), model.created_at.date().isoformat()),
    ]
    if not (origins.base is not None and origins.base.kind == ModelKind.HUB):
        del facts[2]
    return f"## {_('What it is')}\n\n{_facts_table(facts)}"


def _training_sections(model: RegisteredModel, origins: Origins) -> list[str]:
    if not origins.stages:
        return [f"## {_('Training')}\n\n{_('It was not trained here.')} {_('Its training is not recorded.')}"]
    parts = [f"## {_('Training')}"]
    for number, stage in enumerate(reversed(origins.stages), 1):
        parts.append(f"### {number}. {stage.run.name}")
        parts.append(_facts_table(_stage_facts(model, stage)))
        if components := components_of(stage):
            rows = [[title_of(part), f"{part.weight:g}"] for part in components]
            parts.append(table([_("Reward component"), _("Weight")], rows))
    return parts


def _stage_facts(model: RegisteredModel, stage: Stage) -> list[Fact]:
    run = stage.run
    steps = "" if stage.step is None else str(stage.step)
    facts = [Fact(_("Method"), translated(run.method.title)), Fact(_("Steps"), steps)]
    facts += trained_on(model.project, stage)
    if stage.dataset is not None:
        facts += [Fact(_("Rows"), str(stage.dataset.rows)), Fact("SHA-256", stage.dataset.sha256)]
    facts += _option_facts(config_of(run), stage) if not run.imported_from else []
    facts += [
        Fact(_("Device"), str(stage.started.get("device") or "")),
        Fact(_("Versions"), ", ".join(f"{k} {v}" for k, v in sorted((stage.started.get("versions") or {}).items()))),
        Fact(_("Time"), _duration_text(run)),
    ]
    return facts + _figure_facts(stage)


def _option_facts(config: JobConfig | None, stage: Stage) -> list[Fact]:
    """The options that say most about a training."""
    if config is None:
        return [Fact(_("Options"), "")]
    lora = config.model.lora_rank
    facts = [
        Fact(_("Learning rate"), f"{config.learning_rate:g}"),
        Fact("LoRA", _("rank %(rank)d, alpha %(alpha)d") % {"rank": lora, "alpha": config.model.adapter_alpha})
        if lora
        else Fact("LoRA", _("none: all weights were trained")),
        Fact(_("Seed"), str(config.run.seed)),
    ]
    if not config.method.plays:
        return facts
    words = {"prompts": config.rollout.prompts_per_step, "rollouts": config.group_size}
    return [
        Fact(_("Rollouts of a step"), _("%(prompts)d prompts × %(rollouts)d") % words),
        Fact(_("Temperature"), f"{config.rollout.temperature:g}"),
        Fact("KL β", f"{config.gradient.beta:g}"),
        *facts,
    ]


def _figure_facts(stage: Stage) -> list[Fact]:
    """The first figures of the run's page, at the step whose weights were used."""
    run = stage.run
    step = stage.step if stage.step is not None else run.step
    values = values_at(run, run.method.tiles, step)
    found = [(METRICS[name], values.get(name)) for name in run.method.tiles]
    return [
        Fact(
            _("%(figure)s, up to step %(step)d") % {"figure": translated(entry.title), "step": step},
            SHOWN_AS[entry.form](value),
        )
        for entry, value in found
        if value is not None
    ]


def _duration_text(run: Run) -> str:
    if run.started_at is None or run.finished_at is None:
        return ""
    return duration(run.finished_at - run.started_at)


def _evaluation_section(found: Sequence[Score]) -> str:
    title = f"## {_('Evaluation')}"
    if not found:
        return f"{title}\n\n{_('It was not evaluated.')}"
    heads = [
        _("Tasks"),
        _("Environment"),
        *_column_titles(found),
        _("Tasks × samples"),
        _("Reward spec"),
        _("Run"),
        _("Ended"),
    ]
    rows = [
        [
            score.data or _("drawn by the environment"),
            score.environment or _("none"),
            *(_cell_text(score, title) for title in _column_titles(found)),
            tries_words(score.report),
            score.spec or _("written in the config"),
            score.run.name,
            score.at.date().isoformat() if score.at is not None else not_recorded(),
        ]
        for score in found
    ]
    return f"{title}\n\n{_('Means over tasks, with 95% intervals.')}\n\n{table(heads, rows)}"


def _column_titles(found: Sequence[Score]) -> list[str]:
    return list(dict.fromkeys(cell.title for score in found for cell in score.cells))


def _cell_text(score: Score, title: str) -> str:
    cell = next((cell for cell in score.cells if cell.title == title), None)
    if cell is None:
        return "–"
    return f"{cell.text} ({cell.low} – {cell.high})" if cell.low else cell.text


def _limits_section(found: Sequence[Score]) -> str:
    """The section on what the figures do not show."""
    lines = [score.left_out for score in found if score.left_out]
    for score in found:
        words = {"run": score.run.name, "learned": score.overlap.words}
        if score.trained_on:
            lines.append(_("%(run)s: %(learned)s. That says little about other tasks.") % words)
        elif score.overlap.words:
            lines.append(_("%(run)s: %(learned)s.") % words)
    lines.append(
        _("Nothing beyond the table above was evaluated: other tasks, languages and misuse are not known.")
        if found
        else _("No evaluation is on record: how well it does on any task is not known.")
    )
    return f"## {_('What was not evaluated')}\n\n" + "\n".join(f"- {line}" for line in lines)


def _facts_table(facts: Sequence[Fact]) -> str:
    return table([_("Fact"), _("Value")], [[fact.label, fact.text or not_recorded()] for fact in facts])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_in_cell(cell) for cell in line) + " |" for line in lines)


def _in_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
