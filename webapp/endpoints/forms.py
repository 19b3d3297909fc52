"""The form of an endpoint. Its limits are judged by the service, as those of the API are."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import name_validator
from webapp.common.outbound import MAX_URL_CHARS
from webapp.endpoints.models import Endpoint, ToolFormat
from webapp.endpoints.services import CHANGED, MAX_KEY_CHARS


def _amount_field(label: Any, help_text: Any = "") -> forms.FloatField:
    field = forms.FloatField(label=label, help_text=help_text, required=False)
    field.widget.attrs["step"] = "any"
    return field


class EndpointForm(forms.Form):
    """All of an endpoint; the key is only ever written. The name of one that exists cannot be changed."""

    name = forms.CharField(
        label=_("Name"), max_length=80, validators=[name_validator], help_text=_("Its name in runs and comparisons.")
    )
    url = forms.CharField(
        label=_("Address"),
        max_length=MAX_URL_CHARS,
        help_text=_("Up to and including the version, such as https://api.example.com/v1 or http://gpu-1:8000/v1."),
    )
    model = forms.CharField(label=_("Model"), max_length=200, help_text=_("The name of the model on the server."))
    key = forms.CharField(
        label=_("Key"),
        max_length=MAX_KEY_CHARS,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("Sent as a bearer token, to this server alone. It is kept in a file and never shown again."),
    )
    remove_key = forms.BooleanField(label=_("Remove the key"), required=False)
    tool_format = forms.ChoiceField(
        label=_("Tool calls"),
        choices=ToolFormat.choices,
        initial=ToolFormat.NATIVE,
        help_text=_("How tools are described to it and how it calls them; the test shows which form works."),
    )
    context_tokens = forms.IntegerField(
        label=_("Context"), required=False, help_text=_("Longest prompt and answer together; the launch check uses it.")
    )
    concurrency = forms.IntegerField(
        label=_("Concurrent requests"), initial=8, help_text=_("Requests of one run at once, at most.")
    )
    timeout_s = forms.FloatField(
        label=_("Answer within"), initial=120, help_text=_("Time limit of one request, retries included.")
    )
    price_in = _amount_field(_("Price of input"), _("Of a million prompt tokens."))
    price_out = _amount_field(_("Price of output"), _("Of a million sampled tokens."))
    currency = forms.CharField(
        label=_("Currency"), max_length=3, required=False, help_text=_("Three letters, such as USD or CNY.")
    )
    max_run_tokens = forms.IntegerField(label=_("Tokens of a run, at most"), required=False)
    max_run_cost = _amount_field(_("Cost of a run, at most"))
    max_day_tokens = forms.IntegerField(label=_("Tokens of a day, at most"), required=False)
    max_day_cost = _amount_field(_("Cost of a day, at most"))

    def __init__(self, data: Any = None, *, endpoint: Endpoint | None = None, keyed: bool = False) -> None:
        initial = {name: getattr(endpoint, name) for name in CHANGED} if endpoint is not None else None
        super().__init__(data, initial=initial)
        if endpoint is not None:
            del self.fields["name"]
        if not keyed:
            del self.fields["remove_key"]
        else:
            self.fields["key"].help_text = _("There is a key. Leave this empty to keep it; what you enter replaces it.")

    def values(self) -> dict[str, Any]:
        """Arguments of the services; ``key`` is ``None`` where it does not change."""
        data = self.cleaned_data
        given = {name: data[name] for name in (*CHANGED, "name") if name in data}
        return given | {"key": "" if data.get("remove_key") else data["key"] or None}
