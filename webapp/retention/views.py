"""The page of a project's rules of retention: members read what they free, owners change them."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.retention.candidates import WHY
from webapp.retention.rules import MOST, Rule, Wanted, rules_change, rules_if, rules_of, site_rule
from webapp.retention.services import Row, lately_freed, overview
from webapp.retention.words import evidence, freed_sentence, headline, rule_text
from webapp.runs.removal.models import Kept, RetentionRules
from webapp.runs.removal.selectors import rule_words

SITE, OWN = "site", "own"
HELP = {
    Kept.WORDS: gettext_lazy(
        "What was said in each rollout, in the database and in the journal, with the values of its tokens. Rewards, "
        "outcomes and curves stay."
    ),
    Kept.TOKENS: gettext_lazy("Log-probabilities, entropies and ratios of the newest steps."),
    Kept.LOGS: gettext_lazy("What the trainer's process printed. Messages and events stay."),
    Kept.CHECKPOINTS: gettext_lazy("Checkpoints and finished models from which no model is registered."),
}


class RulesForm(forms.Form):
    """For each kind the site's rule, or limits of the project's own."""

    use_required_attribute = False

    def __init__(self, data: Any = None, *, rules: dict[Kept, Rule], fixed: bool) -> None:
        super().__init__(data)
        for kind, rule in rules.items():
            site = rule_text(site_rule(kind))
            self.fields[f"{kind}_whose"] = forms.ChoiceField(
                choices=[(SITE, _("the site's: %(rule)s") % {"rule": site}), (OWN, _("of this project"))],
                initial=OWN if rule.own else SITE,
                label=_("Rule for %(what)s") % {"what": kind.label},
                disabled=fixed,
            )
            for name, label in (("days", _("Days after the end of the run")), ("gib", _("GiB at most"))):
                self.fields[f"{kind}_{name}"] = forms.IntegerField(
                    min_value=1,
                    max_value=MOST,
                    required=False,
                    initial=getattr(rule, name) if rule.own else None,
                    label=label,
                    disabled=fixed,
                )

    @property
    def wanted(self) -> Wanted:
        """The rules as they were entered."""
        data = self.cleaned_data
        return {
            kind.value: {name: data[f"{kind}_{name}"] for name in ("days", "gib")}
            if data[f"{kind}_whose"] == OWN
            else None
            for kind in Kept
        }


class Line(NamedTuple):
    """A kind on the page."""

    row: Row
    help: str
    fields: list[BoundField]
    kept: list[tuple[str, int]]


@login_required
@require_http_methods(["GET", "POST"])
def retention_page(request: HttpRequest, slug: str) -> HttpResponse:
    """What the rules free; a form that was sent with ``preview`` shows what its rules would free, and keeps nothing."""
    posted, preview = request.method == "POST", "preview" in request.POST
    project = project_for(request.user, slug, need=Role.OWNER if posted else Role.VIEWER)
    is_owner = getattr(project, "role", None) == Role.OWNER
    rules = rules_of(project)
    form = RulesForm(request.POST if posted else None, rules=rules, fixed=not is_owner)
    valid = posted and form.is_valid()
    if valid and not preview:
        ask(request, Act.RETENTION)
        rules_change(project=project, user=cast(User, request.user), rules=form.wanted)
        messages.success(request, _("Saved. The rules are applied every few minutes from now on."))
        return redirect("retention-page", slug=slug)
    found = overview(project, rules_if(project, form.wanted) if valid else rules)
    context = {
        "project": project,
        "form": form,
        "is_owner": is_owner,
        "preview": valid,
        "headline": headline(found),
        "evidence": evidence(found),
        "freed": freed_sentence(found),
        "lines": [_line(form, row) for row in found.rows],
        "lately": [(each, rule_words(each)) for each in lately_freed(project)],
        "changed": RetentionRules.objects.filter(project=project).select_related("changed_by").first(),
    }
    return render(request, "retention/page.html", context, status=422 if posted and not valid else 200)


def _line(form: RulesForm, row: Row) -> Line:
    fields = [form[f"{row.kind}_{name}"] for name in ("whose", "days", "gib")]
    kept = Counter(item.kept for item in row.kept)
    return Line(row, str(HELP[row.kind]), fields, [(str(why), kept[name]) for name, why in WHY.items() if kept[name]])
