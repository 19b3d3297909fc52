"""The run doctor: what goes wrong in runs that learn from rollouts, found step by step while they train.

Pure arithmetic over the curves of ``training/metrics.py`` and compact facts of rollouts; it knows neither the web nor
torch. ``doctor.py`` sees one step after another, the modules of detectors hold one function for each advisory,
``rules.py`` their words, ``options.py`` their thresholds, ``reading.py`` makes the facts of a journal. docs/doctor.md
is made of them.
"""

from __future__ import annotations

from training.doctor.diagnosis import TITLES, Diagnosis, diagnosis_of
from training.doctor.digest import KEPT, PARTS, RolloutFact, StepFacts
from training.doctor.doctor import Advisory, Doctor
from training.doctor.options import DoctorOptions
from training.doctor.reading import AnswerKind, answer_kind, manner_of, success_in
from training.doctor.rules import CURVES, RULES, SEVERITIES

__all__ = [
    "CURVES",
    "KEPT",
    "PARTS",
    "RULES",
    "SEVERITIES",
    "TITLES",
    "Advisory",
    "AnswerKind",
    "Diagnosis",
    "Doctor",
    "DoctorOptions",
    "RolloutFact",
    "StepFacts",
    "answer_kind",
    "diagnosis_of",
    "manner_of",
    "success_in",
]
