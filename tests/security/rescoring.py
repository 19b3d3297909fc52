"""What starting and cancelling the scoring of recorded rollouts sends, for the test of the audit."""

from __future__ import annotations

from typing import Any

from tests.security.routes import API, OWN_PK, PROJECT
from webapp.rewards.models import RewardSpec

Sent = tuple[str, Any]


def played(of: dict[str, Any]) -> list[str]:
    """Two evaluations of the same tasks."""
    return [str(of["evaluation"](name, {0: [1.0], 1: [0.0]}).pk) for name in ("x", "y")]


def rescoring_acts() -> dict[str, Sent]:
    """The action and the body of each address."""
    return {
        PROJECT + "compare/rescore/": ("rescoring_begun", lambda of: {"c": played(of), "spec": _unrecorded(of)}),
        PROJECT + "compare/rescorings/" + OWN_PK + "cancel/": ("rescoring_cancelled", {}),
        API + "projects/<slug:slug>/compare/rescore": (
            "rescoring_begun",
            lambda of: {"runs": played(of), "spec": _unrecorded(of)},
        ),
        API + "rescorings/<uuidstr:rescoring_id>/cancel": ("rescoring_cancelled", {}),
    }


def _unrecorded(of: dict[str, Any]) -> str:
    """A spec with a component that these evaluations have not recorded."""
    components = [{"name": "coherence", "weight": 1.0, "params": {}}]
    return RewardSpec.objects.create(project=of["project"], name="other", components=components).reference
