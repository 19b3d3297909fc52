"""Pages of vote rounds: the list, making one, voting, and the results."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.evaluation.comparison.contestants import LEAST, contestants_of
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.votes import selectors, services
from webapp.evaluation.votes.models import Ballot, BallotKind, Vote, VoteRound
from webapp.people.teams.access import own, project_for
from webapp.people.teams.models import Project, Role, User

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form that makes a vote round.


class VoteRoundForm(forms.Form):
    """The question, the voters, and the number of ballots. The address names the contestants."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Voters see it, so it should not say who plays."),
    )
    ballots = forms.IntegerField(
        label=gettext_lazy("Ballots"),
        min_value=1,
        max_value=services.MOST_BALLOTS,
        initial=services.BALLOTS,
        help_text=gettext_lazy("How many pairs each voter sees; a ballot takes about a minute."),
    )
    instructions = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        max_length=services.MOST_INSTRUCTIONS,
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
        members = selectors.members_of(project)
        self.fields["voters"].queryset = members  # type: ignore[attr-defined]
        self.fields["voters"].initial = [member.pk for member in members]
        self.fields["name"].initial = selectors.next_name(project)


@login_required
@require_GET
def vote_rounds(request: HttpRequest, slug: str) -> HttpResponse:
    """The project's rounds, newest first."""
    project = project_for(request.user, slug)
    rows = selectors.round_rows(project, cast(User, request.user))
    return render(request, "votes/list.html", {"project": project, "rows": rows})


@login_required
@require_http_methods(["GET", "POST"])
def vote_round_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Make a round of the contestants that the address or the form names (``c``), with rewards weighed by ``spec``."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    user = cast(User, request.user)
    asked = request.POST if request.method == "POST" else request.GET
    contestants, notes = contestants_of(project, asked.getlist("c"))
    read = evaluations(project, contestants, asked.get("spec", ""))
    form = VoteRoundForm(request.POST if request.method == "POST" else None, project=project)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.round_create(project=project, user=user, read=read, **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is open.") % {"name": made.name})
            return redirect("vote-round", slug, made.pk)
    pool = services.pool_of(read.playing, read.rewards, 0) if read is not None else None
    context = {
        "project": project,
        "form": form,
        "notes": notes,
        "contestants": contestants,
        "spec": asked.get("spec", "")[:200],
        "address": urlencode([*(("c", item.run.pk) for item in contestants), ("spec", asked.get("spec", "")[:200])]),
        "read": read,
        "piles": _piles_by_pair(pool) if pool is not None else [],
        "unknown": pool is not None and _has_unknown(pool),
        "tasks": pool.tasks if pool is not None else 0,
        "left_out": [item for item in contestants if read is None or item not in read.playing],
    }
    return render(request, "votes/new.html", context, status=422 if request.method == "POST" else 200)


def _piles_by_pair(pool: services.Pool) -> list[dict[str, Any]]:
    """For each pair the tasks of each kind; those without a verdict only where there are some."""
    kinds = [kind for kind in BallotKind.values if kind != BallotKind.UNKNOWN or _has_unknown(pool)]
    return [
        {
            "first": pool.contestants[a],
            "second": pool.contestants[b],
            "counts": [len(piles[kind]) for kind in kinds],
        }
        for (a, b), piles in pool.piles.items()
    ]


def _has_unknown(pool: services.Pool) -> bool:
    return any(piles[BallotKind.UNKNOWN] for piles in pool.piles.values())


@never_cache
@login_required
@require_GET
def vote_round(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """A round, and its results once the person may see them; from then on the person's own votes are final."""
    made, user = _round_of(request, slug, pk), cast(User, request.user)
    context = _round_context(made, user)
    if context["standing"].may_look:
        services.results_seen(made=made, user=user)
        context["results"] = selectors.results_of(made)
    return render(request, "votes/round.html", context)


def _round_context(made: VoteRound, user: User) -> dict[str, Any]:
    ballots = made.ballots.count()
    return {
        "project": made.project,
        "round": made,
        "can_manage": services.may_manage(made, user),
        "standing": selectors.standing_of(made, user),
        "ballots": ballots,
        "gone": ballots - selectors.playable(made).count(),
        "compare": _compare_query(made),
    }


def _compare_query(made: VoteRound) -> str:
    """The comparison of the round's contestants; empty where fewer than two are left."""
    ids = [item.run_id for item in made.contestants.select_related("run") if item.present]
    return urlencode([("c", pk) for pk in ids]) if len(ids) >= LEAST else ""


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def vote(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One ballot after the other: ``GET`` shows the one that is asked for (``ballot``), else the next; ``POST`` keeps
    an answer and shows the next. A script gets the ballot alone."""
    made, user = _round_of(request, slug, pk), cast(User, request.user)
    if request.method == "GET":
        asked = selectors.ballot_in(made, request.GET.get("ballot", ""), only_playable=True)
        return _ballot_page(request, made, user, asked)
    ballot = selectors.ballot_in(made, request.POST.get("ballot", ""))
    if ballot is None:
        return _ballot_page(request, made, user, error=_("This ballot is not in this round (any more)."))
    try:
        before = services.vote_cast(ballot=ballot, user=user, side=request.POST.get("answer", "")).before
    except ValidationError as exc:
        same = selectors.ballot_in(made, str(ballot.pk), only_playable=True)
        return _ballot_page(request, made, user, same, error=" ".join(exc.messages))
    note = _("Your earlier answer to that ballot was replaced.") if before else ""
    if request.htmx:  # type: ignore[attr-defined]
        return _ballot_page(request, made, user, note=note)
    if note:
        messages.info(request, note)
    return redirect("vote", slug, pk)


@login_required
@require_POST
def vote_undo(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Take the last vote back and show its ballot again."""
    made, user = _round_of(request, slug, pk), cast(User, request.user)
    try:
        undone = services.vote_undo(made=made, user=user)
    except ValidationError as exc:
        return _ballot_page(request, made, user, error=" ".join(exc.messages))
    if not request.htmx:  # type: ignore[attr-defined]
        return redirect(reverse("vote", args=[slug, pk]) + (f"?ballot={undone.pk}" if undone else ""))
    again = selectors.ballot_in(made, str(undone.pk), only_playable=True) if undone else None
    note = _("Your last vote was taken back.") if undone else _("There is no vote to take back.")
    return _ballot_page(request, made, user, again, note=note)


def _ballot_page(
    request: HttpRequest,
    made: VoteRound,
    user: User,
    ballot: Ballot | None = None,
    *,
    note: str = "",
    error: str = "",
) -> HttpResponse:
    """A ballot, the next one if none is given, or why there is none."""
    standing = selectors.standing_of(made, user)
    context = {"project": made.project, "round": made, "standing": standing, "note": note, "error": error}
    if standing.may_vote:
        context |= _ballot_context(made, user, ballot or selectors.next_ballot(made, user), standing.progress.done)
    template = "votes/_ballot.html" if request.htmx else "votes/vote.html"  # type: ignore[attr-defined]
    return render(request, template, context, status=422 if error else 200)


def _ballot_context(made: VoteRound, user: User, ballot: Ballot | None, done: int) -> dict[str, Any]:
    if ballot is None:
        return {}
    ballot.round = made
    left = services.first_left(made, ballot, user)
    earlier = Vote.objects.filter(ballot=ballot, voter=user).first()
    return {
        "ballot": ballot,
        "number": done + (0 if earlier else 1),
        "chosen": services.side_of(earlier.answer, left) if earlier else "",
        "shown": selectors.shown(ballot, left_first=left),
    }


@login_required
@require_POST
def vote_round_close(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End the voting."""
    made = _managed_round(request, slug, pk)
    if services.round_close(made=made, user=cast(User, request.user)):
        messages.success(request, _("%(name)s is closed; everybody sees the results.") % {"name": made.name})
    return redirect("vote-round", slug, pk)


@login_required
@require_POST
def vote_round_reopen(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Continue the voting."""
    made = _managed_round(request, slug, pk)
    if services.round_reopen(made=made, user=cast(User, request.user)):
        messages.success(
            request, _("%(name)s is open again for those who have not seen the results.") % {"name": made.name}
        )
    return redirect("vote-round", slug, pk)


@login_required
@require_POST
def vote_round_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a round with its votes."""
    made = _managed_round(request, slug, pk)
    services.round_delete(made=made, user=cast(User, request.user))
    messages.success(request, _("%(name)s and its votes were deleted.") % {"name": made.name})
    return redirect("vote-rounds", slug)


def _round_of(request: HttpRequest, slug: str, pk: UUID) -> VoteRound:
    project, made = own(request, slug, VoteRound, pk, within=selectors.rounds_of)
    made.project = project
    return made


def _managed_round(request: HttpRequest, slug: str, pk: UUID) -> VoteRound:
    made = _round_of(request, slug, pk)
    services.require_manager(made, cast(User, request.user))
    return made
