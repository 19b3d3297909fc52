"""Degenerate policies that play without a model: what a reward pays them, it pays for nothing.

Each is a function of a ``Scene`` that writes one turn in the words that a model would use, so that the run's dialect
reads it and text-based rewards see it like a model's. Adding one is a function in ``policies.py``, a line in
``POLICIES`` and its name in ``training.config.Policy``.
"""

from __future__ import annotations

from training.policy.scripted.policies import POLICIES
from training.policy.scripted.scene import Scene
from training.policy.scripted.speech import WordTemplate

__all__ = ["POLICIES", "Scene", "WordTemplate"]
