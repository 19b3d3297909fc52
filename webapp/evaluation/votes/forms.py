"""The form that makes a vote round."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from webapp.common.ids import name_validator
from webapp.evaluation.votes.selectors import members_of, next_name
from webapp.evaluation.votes.services import BALLOTS, MOST_BALLOTS, MOST_INSTRUCTIONS
from webapp.people.teams.models import Project, User


class VoteRoundForm(forms.Form):
    """What is asked, of whom, and on how many ballots. The address names the contestants."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Voters see it, so it should not say who plays."),
    )
    ballots = forms.IntegerField(
        label=gettext_lazy("Ballots"),
        min_value=1,
        max_value=MOST_BALLOTS,
        initial=BALLOTS,
        help_text=gettext_lazy("How many pairs each voter sees; a ballot takes about a minute."),
    )
    instructions = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        max_length=MOST_INSTRUCTIONS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("What counts as better here. Voters read it above each ballot."),
    )
    show_expected = forms.BooleanField(
        label=gettext_lazy("Show the expected answer"),
        required=False,
        help_text=gettext_lazy(
            "Where the dataset has one. Without it people judge what they read, not whether it matches."
        ),
    )
    voters: forms.ModelMultipleChoiceField[User] = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Who is asked"),
        queryset=User.objects.none(),
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": gettext_lazy("Ask at least one person.")},
    )

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        members = members_of(project)
        self.fields["voters"].queryset = members  # type: ignore[attr-defined]
        self.fields["voters"].initial = [member.pk for member in members]
        self.fields["name"].initial = next_name(project)
