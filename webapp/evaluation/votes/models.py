"""A vote round: its contestants, voters, ballots and votes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from webapp.common.ids import UuidModel, name_validator
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class VoteRound(UuidModel):
    """Ballots that were drawn once, so that every voter sees the same pairs. ``seed`` drew them, and decides for each
    voter and ballot which contestant is on the left."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="vote_rounds")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    instructions = models.TextField(blank=True, max_length=2000)
    show_expected = models.BooleanField(default=False, help_text="whether voters see the row's expected answer")
    weighed_by = models.CharField(
        max_length=200, blank=True, help_text="the spec of the ballots' rewards, where the contestants' own differ"
    )
    seed = models.BigIntegerField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="vote_round_name_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def open(self) -> bool:
        """Whether people may still vote."""
        return self.closed_at is None

    @property
    def url(self) -> str:
        """Address of its page."""
        return reverse("vote-round", args=[self.project.slug, self.pk])


class RoundContestant(models.Model):
    """A run that is voted on, by its place in the comparison; ``name`` stays when the run goes."""

    round = models.ForeignKey(VoteRound, on_delete=models.CASCADE, related_name="contestants")
    number = models.PositiveSmallIntegerField()
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=80)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["round", "number"], name="round_contestant_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def present(self) -> bool:
        """Whether the run is still there: not deleted, and not waiting for that."""
        return self.run is not None and self.run.removed_at is None


class RoundVoter(models.Model):
    """A person who is asked. After they have seen the results (``seen_at``) they vote no more: it would not be
    blind."""

    round = models.ForeignKey(VoteRound, on_delete=models.CASCADE, related_name="voters")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="vote_rounds")
    seen_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["round", "user"], name="round_voter_once")]

    def __str__(self) -> str:
        return str(self.user)


class BallotKind(models.TextChoices):
    """Which of the two tries solved its task, by the environment's verdict."""

    FIRST = "first", _("the first solves, the second fails")
    SECOND = "second", _("the second solves, the first fails")
    BOTH = "both", _("both solve")
    NEITHER = "neither", _("neither solves")
    UNKNOWN = "unknown", _("no verdict")


class Ballot(UuidModel):
    """Two tries of one task. Their rewards are kept as they were when the ballot was drawn; the ids of rollouts are
    no keys, because a ballot outlives its contestants."""

    round = models.ForeignKey(VoteRound, on_delete=models.CASCADE, related_name="ballots")
    number = models.PositiveIntegerField()
    task = models.PositiveIntegerField(help_text="the task's number in the dataset or the environment's draw")
    attempt = models.PositiveIntegerField(help_text="which try of the task, from 0")
    text = models.TextField(blank=True)
    expected = models.TextField(blank=True)
    kind = models.CharField(max_length=10, choices=BallotKind.choices)
    weight = models.FloatField(default=1.0, help_text="how many tasks it stands for, on average 1 in its pair")
    first = models.ForeignKey(RoundContestant, on_delete=models.CASCADE, related_name="+")
    second = models.ForeignKey(RoundContestant, on_delete=models.CASCADE, related_name="+")
    first_rollout = models.UUIDField()
    second_rollout = models.UUIDField()
    first_reward = models.FloatField(null=True)
    second_reward = models.FloatField(null=True)
    first_success = models.FloatField(null=True)
    second_success = models.FloatField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["round", "number"], name="ballot_once")]

    def __str__(self) -> str:
        return f"ballot {self.number}"


class Answer(models.TextChoices):
    """A person's preference between a ballot's first and second contestant, on either side."""

    FIRST = "first", pgettext_lazy("vote", "first better")
    SECOND = "second", pgettext_lazy("vote", "second better")
    TIE = "tie", pgettext_lazy("vote", "tie")
    BOTH_BAD = "both_bad", pgettext_lazy("vote", "both bad")


class Vote(models.Model):
    """One person's answer to one ballot. ``first_left``: the first contestant was on the left."""

    ballot = models.ForeignKey(Ballot, on_delete=models.CASCADE, related_name="votes")
    voter = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    answer = models.CharField(max_length=10, choices=Answer.choices)
    first_left = models.BooleanField()
    cast_at = models.DateTimeField(help_text="when it was given, or last changed")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["ballot", "voter"], name="vote_once")]

    def __str__(self) -> str:
        return f"{self.voter}: {self.answer}"
