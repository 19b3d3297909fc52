"""Pages of saved comparisons."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST, require_safe

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.views import OptionGroup, OptionRow, as_file
from webapp.evaluation.sharing import services
from webapp.evaluation.sharing.models import MAX_COMMENT_CHARS, Comment, SavedComparison, SharedLink
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.logins import guess_wait_s, open_wait_s
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask

# --- Forms ----------------------------------------------------------------------------------------------------------
# Forms of saved comparisons.


class NameForm(forms.Form):
    """The name of a comparison."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("What it shows, in a few words. The team finds it under this name."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class SaveForm(NameForm):
    """A comparison to save: its name, and the query of its page."""

    address = forms.CharField(widget=forms.HiddenInput, required=False, strip=False)


class LinkForm(forms.Form):
    """A link to make."""

    days = forms.TypedChoiceField(
        label=gettext_lazy("Valid for"),
        coerce=int,
        choices=[
            (1, gettext_lazy("1 day")),
            (7, gettext_lazy("7 days")),
            (30, gettext_lazy("30 days")),
            (90, gettext_lazy("90 days")),
        ],
        initial=7,
        help_text=gettext_lazy("It can be revoked at any time before."),
    )


class CommentForm(forms.Form):
    """A comment. Its length is checked where it is written, line ends counted once."""

    text = forms.CharField(
        label=gettext_lazy("Comment"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": MAX_COMMENT_CHARS}),
    )


@login_required
@require_http_methods(["GET", "POST"])
def comparison_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Save the comparison whose query is in ``address``."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        form, status = SaveForm(initial={"address": request.GET.urlencode()}), 200
    else:
        form, status = SaveForm(request.POST), 422
        if form.is_valid():
            try:
                query = services.query_of(project, form.cleaned_data["address"])
                saved = services.comparison_save(
                    project=project, user=cast(User, request.user), name=form.cleaned_data["name"], query=query
                )
            except ValidationError as exc:
                add_errors(form, exc)
            else:
                messages.success(request, _("%(name)s is saved.") % {"name": saved.name})
                return redirect("compare-saved", slug, saved.pk)
    address = str(form["address"].value() or "")
    names = [item.run.name for item in _contestants_at(project, address)]
    context = {"project": project, "form": form, "address": address, "names": names}
    return render(request, "sharing/new.html", context, status=status)


def _contestants_at(project: Project, address: str) -> list[Any]:
    """The contestants that would be saved, for the page that asks for a name."""
    try:
        return contestants_of(project, services.query_of(project, address).runs)[0]
    except ValidationError:
        return []


@login_required
@require_GET
def comparison_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """A saved comparison as it is now."""
    project, saved = own(request, slug, SavedComparison, pk, within=services.comparisons_of)
    found = services.opened(saved, request.GET)
    context = {
        "opened": found,
        "found": found.found,
        "contestants": found.contestants,
        "address": found.address,
        "links": services.links_open(saved),
        "name_form": NameForm(initial={"name": saved.name}),
    }
    return render(request, "sharing/saved.html", comments_context(request, project, saved) | context)


def comments_context(request: HttpRequest, project: Project, saved: SavedComparison) -> dict[str, Any]:
    """The context of the comments below a comparison."""
    return {
        "project": project,
        "saved": saved,
        "comments": services.comments_of(saved),
        "comment_form": CommentForm(),
        "may_write": can_edit(project),
        "may_end": getattr(project, "role", "") == Role.OWNER
        or (saved.created_by == request.user and can_edit(project)),
    }


def _is_owner(project: Project) -> bool:
    return getattr(project, "role", None) == Role.OWNER


@login_required
@require_POST
def comparison_rename(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Rename it."""
    project, saved = own(request, slug, SavedComparison, pk, within=services.comparisons_of)
    services.own_or_owned(request.user, saved)
    form = NameForm(request.POST)
    if form.is_valid():
        try:
            services.comparison_rename(saved, form.cleaned_data["name"])
            return redirect("compare-saved", slug, pk)
        except ValidationError as exc:
            add_errors(form, exc)
    return _render_refused(request, project, saved, form, _("Rename"))


@login_required
@require_POST
def comparison_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete it with its comments and links."""
    _project, saved = own(request, slug, SavedComparison, pk, within=services.comparisons_of)
    services.own_or_owned(request.user, saved)
    name = saved.name
    services.comparison_delete(saved)
    messages.success(request, _("%(name)s is deleted; its runs stay.") % {"name": name})
    return redirect("compare", slug)


# --- Comments ---------------------------------------------------------------------------------------------------------
@login_required
@require_POST
def comment_new(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Add a comment below a comparison."""
    project, saved = own(request, slug, SavedComparison, pk, need=Role.EDITOR, within=services.comparisons_of)
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            services.comment_add(saved=saved, user=cast(User, request.user), text=form.cleaned_data["text"])
            return _comments_response(request, project, saved)
        except ValidationError as exc:
            add_errors(form, exc)
    return _comments_response(request, project, saved, form)


@login_required
@require_POST
def comment_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change one's own comment."""
    project, comment = own(request, slug, Comment, pk, within=_comments_in)
    project_for(request.user, slug, need=Role.EDITOR)
    if comment.created_by_id != request.user.pk:
        raise PermissionDenied(_("Only the person who wrote a comment can change it."))
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            services.comment_edit(comment, form.cleaned_data["text"])
            return _comments_response(request, project, comment.comparison)
        except ValidationError as exc:
            add_errors(form, exc)
    return _comments_response(request, project, comment.comparison, form, edited=comment.pk)


@login_required
@require_POST
def comment_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a comment."""
    project, comment = own(request, slug, Comment, pk, within=_comments_in)
    services.own_or_owned(request.user, comment)
    services.comment_delete(comment)
    return _comments_response(request, project, comment.comparison)


def _comments_in(project: Project) -> QuerySet[Comment]:
    found = Comment.objects.filter(comparison__project=project)
    return found.select_related("comparison__project", "created_by")


def _comments_response(
    request: HttpRequest,
    project: Project,
    saved: SavedComparison,
    refused: CommentForm | None = None,
    edited: UUID | None = None,
) -> HttpResponse:
    """The comments alone for htmx, else the way back to them; a form that was refused comes back with its text."""
    if getattr(request, "htmx", False):
        context = comments_context(request, project, saved)
        if refused is not None:
            context |= {"edit_form": refused, "edited": edited} if edited else {"comment_form": refused}
        return render(request, "sharing/_comments.html", context, status=422 if refused else 200)
    if refused is not None:
        return _render_refused(request, project, saved, refused, _("Save") if edited else _("Add a comment"))
    return redirect(f"{reverse('compare-saved', args=[project.slug, saved.pk])}#comments")


def _render_refused(
    request: HttpRequest, project: Project, saved: SavedComparison, form: NameForm | CommentForm, act: str
) -> HttpResponse:
    """A form that was refused, alone on a page, with what was typed."""
    context = {"project": project, "saved": saved, "form": form, "act": act}
    return render(request, "sharing/again.html", context, status=422)


# --- Link views -----------------------------------------------------------------------------------------------------
# The page of the links that share a comparison.


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def link_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The links of a comparison, and a new one, whose address is shown in this answer and never again."""
    posted = request.method == "POST"
    need = Role.EDITOR if posted else Role.VIEWER
    project, saved = own(request, slug, SavedComparison, pk, need=need, within=services.comparisons_of)
    form, status, shown = LinkForm(request.POST if posted else None), 200, cast(dict[str, Any], {})
    if posted:
        status = 422
        if form.is_valid():
            ask(request, Act.SHARE)
            try:
                made, secret = services.link_create(
                    saved=saved, user=cast(User, request.user), days=form.cleaned_data["days"]
                )
            except ValidationError as exc:
                add_errors(form, exc)
            else:
                address = request.build_absolute_uri(reverse("shared", args=[secret]))
                shown, status, form = {"made": made, "address": address}, 201, LinkForm()
    context = {
        "project": project,
        "saved": saved,
        "form": form,
        "lines": services.link_lines(services.links_of(saved)),
        "may_write": can_edit(project),
        "owner": getattr(project, "role", "") == Role.OWNER,
    }
    return render(request, "sharing/links.html", context | shown, status=status)


def _links_in(project: Project) -> QuerySet[SharedLink]:
    return SharedLink.objects.filter(comparison__project=project).select_related("comparison__project")


@login_required
@require_POST
def link_revoke_now(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End a link."""
    _project, link = own(request, slug, SharedLink, pk, within=_links_in)
    services.own_or_owned(request.user, link)
    services.link_revoke(link)
    messages.success(request, _("The link is revoked and no longer opens the report."))
    return redirect("compare-links", slug, link.comparison_id)


# --- Public views ----------------------------------------------------------------------------------------------------
# What a shared link opens, without an account: a report to read and to keep, and no way to anything else.
#
# 1. A link is looked up first, by the hash of its secret: the time that takes says nothing of the secret. An existing
#    link opens, also after many guesses from that address; wrong guesses are counted, and too many have to wait.
# 2. Links that never were, have ended or were revoked look the same: one page, one status.
# 3. The answer has no link into the application, no script and no form; it sets no cookie, and names no host of ours.

View = Callable[..., HttpResponse]
HEADERS = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
}
MAX_SECRET_CHARS = 100
UNTOLD = {"environment.options", "environment.replicas", "endpoint.key_variable"}  # where things run, and with what key


def for_anyone(view: View) -> View:
    """Look the secret up once for the view, and forbid browsers and search engines to keep it."""

    @functools.wraps(view)
    def answer(request: HttpRequest, secret: str) -> HttpResponse:
        response = _answer_link(view, request, secret)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return answer


def _answer_link(view: View, request: HttpRequest, secret: str) -> HttpResponse:
    address = request.META.get("REMOTE_ADDR", "")
    link = services.link_open(secret) if len(secret) <= MAX_SECRET_CHARS else None
    if wait_s := open_wait_s(address, str(link.pk)) if link else guess_wait_s(address):
        waits = render(request, "sharing/ended.html", {"wait_s": wait_s}, status=429)
        waits["Retry-After"] = str(math.ceil(wait_s))
        return waits
    if link is None:
        return render(request, "sharing/ended.html", status=404)
    answer = view(request, link)
    if request.method == "GET":
        services.link_count(link)
    return answer


@require_safe
@for_anyone
def shared_page(request: HttpRequest, link: SharedLink) -> HttpResponse:
    """The report."""
    return render(request, "sharing/shared.html", _public_context(link))


@require_safe
@for_anyone
def shared_file(request: HttpRequest, link: SharedLink) -> HttpResponse:
    """The report as one file that needs nothing else. It does not hold the link's address."""
    page = render_to_string("sharing/shared.html", _public_context(link) | {"as_file": True}, request)
    return as_file(page, "comparison.html", "pages/shared.css")


def _public_context(link: SharedLink) -> dict[str, Any]:
    found = services.opened(link.comparison)
    all_options = found.found.options if found.found else []
    public = _public_options(all_options)
    if found.found is not None:
        found.found.options = public
    return {
        "link": link,
        "saved": link.comparison,
        "opened": found,
        "found": found.found,
        "contestants": found.contestants,
        "standalone": True,
        "options_hidden": public != all_options,
        "now": timezone.localtime(),
    }


def _public_options(groups: list[OptionGroup]) -> list[OptionGroup]:
    """The options without those that name addresses of servers, files of ours or keys."""
    kept = [OptionGroup(group.name, [row for row in group.rows if not _names_location(row)]) for group in groups]
    return [group for group in kept if group.rows]


def _names_location(row: OptionRow) -> bool:
    return row.path in UNTOLD or any(value.startswith("/") or "://" in value for value, _other in row.values)
