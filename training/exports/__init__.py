"""What leaves for other programs: jobs for other trainers (``verl``), preference pairs of a run's rollouts (``pairs``),
and TensorBoard's event files."""

from __future__ import annotations

from training.event_files import EventFile
from training.exports.pairs import PairsMade, require_pairs, write_pairs
from training.exports.verl import export_parts, export_stages, export_verl

__all__ = [
    "EventFile",
    "PairsMade",
    "export_parts",
    "export_stages",
    "export_verl",
    "require_pairs",
    "write_pairs",
]
