"""The page of a project's rules of the run doctor: members read it, owners change it."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from webapp.common.pages import add_errors
from webapp.engine.doctor.forms import RulesForm
from webapp.engine.doctor.rules import rules_change, rules_of
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role, User
from webapp.runs.advisories.models import DoctorRules


@login_required
@require_http_methods(["GET", "POST"])
def doctor_rules(request: HttpRequest, slug: str) -> HttpResponse:
    """The thresholds, and what follows from each advisory."""
    posted = request.method == "POST"
    project = project_for(request.user, slug, need=Role.OWNER if posted else Role.VIEWER)
    is_owner = getattr(project, "role", None) == Role.OWNER
    form = RulesForm(request.POST if posted else None, rules=rules_of(project), fixed=not is_owner)
    if posted and form.is_valid():
        try:
            user, reactions = cast(User, request.user), form.reactions
            resumes = form.cleaned_data["resumes"]
            rules_change(project=project, user=user, thresholds=form.thresholds, reactions=reactions, resumes=resumes)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("Saved. The doctor uses these rules from the next step of each run on."))
            return redirect("doctor-rules", slug=slug)
    changed = DoctorRules.objects.filter(project=project).select_related("changed_by").first()
    context = {"project": project, "form": form, "is_owner": is_owner, "changed": changed}
    return render(request, "doctor/rules.html", context, status=422 if posted else 200)
