"""``python -m training doctor``: the advisories of a run's journals, on the console."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from training.doctor.doctor import Advisory, Doctor
from training.doctor.options import DoctorOptions
from training.doctor.reading import examine
from training.doctor.rules import RULES
from training.errors import ConfigError, DataError
from training.journal import JOURNAL_NAME
from training.words import complaint_of, option_of


def doctor_of(run: Path, settings: Sequence[str]) -> Doctor:
    """The doctor that has seen all attempts of a run. Raises ``ConfigError``, ``DataError``, ``OSError``."""
    options = _options(settings)
    numbered = sorted((found for found in run.glob("*/" + JOURNAL_NAME) if found.parent.name.isdigit()), key=_number)
    folders = [run] if (run / JOURNAL_NAME).exists() else [found.parent for found in numbered]
    if not folders:
        raise DataError(f"{run} has no {JOURNAL_NAME}.", hint="Name the folder of a run.")
    return examine(folders, options)


def as_json(doctor: Doctor) -> str:
    """The advisories as JSON, the newest last."""
    return json.dumps([each.model_dump(mode="json") for each in doctor.advisories], ensure_ascii=False, indent=2)


def as_text(doctor: Doctor) -> str:
    """The advisories as people read them."""
    if not doctor.advisories:
        return "No advisory."
    return "\n\n".join(_advisory_text(each) for each in doctor.advisories)


def _advisory_text(advisory: Advisory) -> str:
    rule = RULES[advisory.code]
    when = f"since step {advisory.first}" if advisory.open else f"steps {advisory.first} to {advisory.last}, over"
    shown = f"\n  Rollouts: {', '.join(advisory.evidence.rollouts)}" if advisory.evidence.rollouts else ""
    return f"{rule.title} ({advisory.code}, {when})\n  {advisory.sentence}{shown}\n  {rule.remedy}"


def _options(settings: Sequence[str]) -> DoctorOptions:
    found = dict(text.partition("=")[::2] for text in settings)
    try:
        return DoctorOptions.model_validate(found)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{option_of(error)}: {complaint_of(error)}") from exc


def _number(path: Path) -> int:
    return int(path.parent.name)
