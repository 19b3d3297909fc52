"""Form fields drawn without templates are what Django's own templates draw."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django import forms
from django.conf import settings
from django.forms.renderers import DjangoTemplates, get_default_renderer

from training.config import JobConfig
from webapp.common.ui import DRAWN, Renderer
from webapp.datasets.views import DatasetForm
from webapp.launch.forms import RunForm
from webapp.people.teams.models import Project
from webapp.rewards.views import RewardSpecForm
from webapp.runs.registry.views import ModelForm

HOSTILE = "\"><script>alert(1)</script>&'`"


class Odd(forms.Form):
    """Whatever a widget may be given."""

    text = forms.CharField(widget=forms.TextInput(attrs={"placeholder": HOSTILE, "data-x": 1234567, "hidden": True}))
    off = forms.CharField(widget=forms.TextInput(attrs={"disabled": False, "autofocus": True}), required=False)
    number = forms.IntegerField(min_value=1000, max_value=9_000_000)
    share = forms.FloatField(min_value=0.5)
    area = forms.CharField(widget=forms.Textarea(attrs={"rows": 4}))
    one = forms.ChoiceField(
        choices=[("", "—"), (1000, "1000"), (HOSTILE, HOSTILE), ("Group", [("a", "A"), ("b", "B")])]
    )
    several = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], widget=forms.SelectMultiple)
    tick = forms.BooleanField(required=False)
    secret = forms.CharField(widget=forms.HiddenInput)
    password = forms.CharField(widget=forms.PasswordInput(render_value=True))
    address = forms.URLField(assume_scheme="https")
    mail = forms.EmailField()
    file = forms.FileField()
    radio = forms.ChoiceField(choices=[("a", HOSTILE)], widget=forms.RadioSelect)
    day = forms.DateTimeField(required=False)


VALUES: dict[str, Any] = {
    "text": HOSTILE, "off": "", "number": 1234567, "share": 0.25, "area": "\nsecond line </textarea>" + HOSTILE,
    "one": HOSTILE, "several": ["b"], "tick": True, "secret": 0, "password": HOSTILE, "address": HOSTILE,
    "mail": "a@b", "radio": "a", "day": "2026-01-02",
}  # fmt: skip


def _compared(form: forms.Form) -> list[str]:
    """The fields as we draw them: as Django's templates do, but for empty lines between options."""
    drawn = []
    for field in form:
        form.renderer = DjangoTemplates()
        theirs = re.sub(r">\s+<", "><", str(field))
        form.renderer = Renderer()
        assert re.sub(r">\s+<", "><", str(field)) == theirs, field.name
        drawn.append(theirs)
    return drawn


@pytest.mark.parametrize("values", [{}, VALUES])
@pytest.mark.parametrize("bound", [False, True])
def test_odd_values_are_drawn_and_escaped_as_by_django(values: dict[str, Any], bound: bool) -> None:
    drawn = _compared(Odd(values) if bound else Odd(initial=values))
    assert len(drawn) == len(Odd.base_fields) and "<script>" not in "".join(drawn)


def test_a_number_has_no_separator_and_a_text_keeps_its_first_new_line(settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    form = Odd(initial=VALUES, renderer=Renderer())
    assert 'value="1234567"' in str(form["number"]) and 'data-x="1234567"' in str(form["text"])
    assert ">\n\nsecond line &lt;/textarea&gt;" in str(form["area"])


@pytest.mark.django_db
def test_the_forms_of_the_pages_are_as_django_draws_them(
    project: Project, make_dataset: Any, make_reward_spec: Any, make_environment: Any, make_run: Any
) -> None:
    for make in (make_dataset, make_reward_spec, make_environment, make_run):
        make()
    config = JobConfig.model_validate({"rewards": {"components": [{"name": "format", "weight": 1}]}})
    fields = _compared(RunForm(project=project, config=config))
    assert len(fields) > 90 and sum("<select" in field for field in fields) > 10
    fields = _compared(RewardSpecForm())
    assert len(fields) > 100 and _compared(ModelForm(project=project)) and _compared(DatasetForm(project))


def test_the_site_draws_its_forms_with_it() -> None:
    assert settings.FORM_RENDERER == "webapp.common.ui.Renderer" and isinstance(get_default_renderer(), Renderer)
    assert {"django/forms/widgets/select.html", "django/forms/widgets/textarea.html"} < DRAWN.keys()
