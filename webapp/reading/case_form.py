"""The form that keeps a rollout as a reward test case: a name, and ranges for the reward and for components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webapp.reading.parts import Part


class CaseForm(forms.Form):
    """``low-0`` and ``high-0`` are the reward's range, ``low-1`` … those of the parts in their order; an empty pair
    expects nothing."""

    name = forms.CharField(max_length=80, label=gettext_lazy("Name"))

    def __init__(self, parts: Sequence[Part], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = [part.name for part in parts]
        self._titles = [_("reward"), *(part.title for part in parts)]
        for at, title in enumerate(self._titles):
            low, high = _("%(what)s, lowest") % {"what": title}, _("%(what)s, highest") % {"what": title}
            self.fields[f"low-{at}"] = forms.FloatField(required=False, label=low)
            self.fields[f"high-{at}"] = forms.FloatField(required=False, label=high)
        for field in self.fields.values():
            field.widget.attrs["class"] = "input"

    @property
    def rows(self) -> list[tuple[str, forms.BoundField, forms.BoundField]]:
        """Title, lowest and highest of each range."""
        return [(title, self[f"low-{at}"], self[f"high-{at}"]) for at, title in enumerate(self._titles)]

    def clean(self) -> dict[str, Any]:
        """A range has both its ends."""
        given = super().clean() or {}
        for at in range(len(self._titles)):
            low, high = given.get(f"low-{at}"), given.get(f"high-{at}")
            if (low is None) != (high is None) and not self.errors:
                self.add_error(f"low-{at}", _("Enter both the lowest and the highest value, or neither."))
        return given

    def ranges(self) -> tuple[list[float] | None, dict[str, list[float]]]:
        """The reward's range, and those of components, as far as they were entered."""
        given = self.cleaned_data
        found = [
            None if given.get(f"low-{at}") is None else [given[f"low-{at}"], given[f"high-{at}"]]
            for at in range(len(self._titles))
        ]
        return found[0], {name: each for name, each in zip(self._names, found[1:], strict=True) if each is not None}
