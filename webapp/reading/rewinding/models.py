"""Branches: what another player did from a turn of a recorded rollout on."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.common.words import Outcome
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout


class Branch(UuidModel):
    """An episode that continued from a turn of a rollout, scored as the rollout was.

    A branch that a run's contestant played is not stored: it is made from the run's rollout, which ``played`` names
    (``webapp/reading/rewinding/scene.py``).
    """

    played: Rollout | None = None
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="branches")
    turn = models.PositiveIntegerField(help_text="the first turn that was not the recorded one, from 1")
    player = models.CharField(max_length=40, blank=True, help_text="the scripted policy that played; empty: a person")
    messages = models.JSONField(help_text="the whole conversation: list of envs.wire.Message")
    prompt_length = models.PositiveIntegerField(help_text="messages before the first turn")
    start = models.PositiveIntegerField(help_text="messages before the turn that was not the recorded one")
    tools = models.JSONField(null=True)
    done = models.BooleanField(help_text="whether the episode came to its own end")
    env_reward = models.FloatField(null=True)
    env_parts = models.JSONField(default=dict)
    parts = models.JSONField(default=dict, help_text="values by reward component; null is missing")
    missing = models.JSONField(default=dict, help_text="why a component is missing")
    reward = models.FloatField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.NO_VERDICT)
    same = models.BooleanField(help_text="whether every turn before it was answered as recorded")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return str(_("branch from turn %(turn)s") % {"turn": self.turn})

    @property
    def truncated(self) -> bool:
        """Whether it was cut off before its end."""
        return not self.done

    def conversation(self, recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The whole conversation; its part before the branch is that of ``recorded`` if both are the same."""
        return [*recorded[: self.start], *self.messages[self.start :]] if self.same else self.messages

    @property
    def turns(self) -> int:
        """Turns that differ from the recorded ones."""
        return sum(message.get("role") == "assistant" for message in self.messages[self.start :])


class Continuation(models.Model):
    """A run whose rollouts continue from a turn of a recorded one; each of them is a branch of it."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="continuation")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="continuations")
    turn = models.PositiveIntegerField(help_text="the first turn that is not the recorded one, from 1")
    contestant = models.CharField(max_length=200, help_text="who plays, as webapp.evaluation.suites.services names it")

    def __str__(self) -> str:
        return str(_("branches from turn %(turn)s") % {"turn": self.turn})
