"""Forms of saved comparisons."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator
from webapp.evaluation.sharing.models import MAX_COMMENT_CHARS


class NameForm(forms.Form):
    """The name of a comparison."""

    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("What it shows, in a few words. The team finds it under this name."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class SaveForm(NameForm):
    """A comparison to save: its name, and the query of its page."""

    address = forms.CharField(widget=forms.HiddenInput, required=False, strip=False)


class LinkForm(forms.Form):
    """A link to make."""

    days = forms.TypedChoiceField(
        label=_("Valid for"),
        coerce=int,
        choices=[(1, _("1 day")), (7, _("7 days")), (30, _("30 days")), (90, _("90 days"))],
        initial=7,
        help_text=_("It can be revoked at any time before."),
    )


class CommentForm(forms.Form):
    """A comment. Its length is checked where it is written, line ends counted once."""

    text = forms.CharField(
        label=_("Comment"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": MAX_COMMENT_CHARS}),
    )
