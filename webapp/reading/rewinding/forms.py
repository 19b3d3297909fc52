"""The form that lets a contestant continue."""

from __future__ import annotations

from django import forms

from webapp.reading.rewinding.continuations import MAX_TIMES


class ContinuationForm(forms.Form):
    """Who continues, from which turn, how often; without a temperature at that of the recorded run."""

    contestant = forms.CharField(max_length=200)
    turn = forms.IntegerField(min_value=1, max_value=2**31 - 1)
    times = forms.IntegerField(min_value=1, max_value=MAX_TIMES)
    temperature = forms.FloatField(required=False, min_value=0.01, max_value=5)

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence for each field."""
        return " ".join(f"{name}: {error}" for name, errors in self.errors.items() for error in errors)
