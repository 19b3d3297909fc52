"""The table of a job's memory as text and as JSON, and the verdict."""

from __future__ import annotations

import json
from typing import Any

from training.config import JobConfig
from training.errors import ConfigError
from training.memory.advice import Verdict, judge
from training.memory.devices import device_here, device_named, gib
from training.memory.need import Term
from training.memory.table import Model

NOT_FOUND = "The size of {source} is not known: it has to be a local folder here, or one of the ids in known.py."


def verdict_of(config: JobConfig, device: str = "") -> Verdict:
    """The verdict for a job. Raises ``ConfigError`` where nobody knows the model's size, ``ModelError``."""
    model = Model.of(config.model.source)
    if model is None:
        raise ConfigError(NOT_FOUND.format(source=config.model.source), option="model.source")
    return judge(config, model, device_named(device) if device else device_here(config.run.device))


def as_text(verdict: Verdict) -> str:
    """The terms as text, the verdict below."""
    need = verdict.need
    lines = [f"{term.title:<40} {gib(term.bytes):>10}  {term.why}" for term in need.terms]
    sums = [f"{'while learning':<40} {gib(need.learning):>10}", f"{'while sampling':<40} {gib(need.sampling):>10}"]
    return "\n".join([*lines, "", *sums, "", f"{verdict.sentence} {verdict.hint}".strip()])


def as_json(verdict: Verdict) -> str:
    """The same for programs: bytes. ``told`` is a sentence as its template and values, for translation."""
    need = verdict.need
    change = verdict.change
    return json.dumps(
        {
            "device": {"title": need.device.title, "bytes": need.device.bytes},
            "terms": [_term(term) for term in need.terms],
            "learning": need.learning,
            "sampling": need.sampling,
            "whole": need.whole,
            "most": need.most,
            "fits": verdict.fits,
            "verdict": str(verdict.sentence),
            "hint": str(verdict.hint),
            "change": change.values if change else None,
            "changed": change.need.whole if change else None,
            "told": {"verdict": verdict.sentence.data, "hint": verdict.hint.data},
        },
        indent=2,
        ensure_ascii=False,
    )


def _term(term: Term) -> dict[str, Any]:
    said = {"why": str(term.why), "told": term.why.data}
    return {"term": term.key, "title": term.title, "part": term.part, "bytes": term.bytes, **said}
