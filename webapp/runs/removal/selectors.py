"""What rules removed from runs, in words for the pages where it was."""

from __future__ import annotations

from django.template.defaultfilters import date
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.runs.models import Run
from webapp.runs.removal.models import Expiry, Kept


def expiries_of(run: Run) -> list[Expiry]:
    """What rules removed from a run, the newest of each kind."""
    if not getattr(run, "expired", True):  # ``records.selectors.own_run`` has asked that with the run
        return []
    return list(Expiry.objects.filter(run=run).order_by("kind", "-at").distinct("kind"))


def expiry_of(run: Run, *kinds: Kept) -> Expiry | None:
    """The newest removal of one of these kinds from a run."""
    return Expiry.objects.filter(run=run, kind__in=kinds).order_by("-at").first()


def removed_sentence(found: Expiry) -> str:
    """When it was removed, and the rule that did so."""
    values = {
        "what": Kept(found.kind).label,
        "day": date(localtime(found.at), "DATE_FORMAT"),
        "rule": rule_words(found),
    }
    return _("Removed on %(day)s by the project's rule for %(what)s: %(rule)s.") % values


def rule_words(found: Expiry) -> str:
    """The limit that was reached."""
    if found.rule["by"] == "size":
        return _("at most %(n)d GiB are kept, and the runs that ended first go first") % {"n": found.rule["gib"]}
    days = found.rule["days"]
    return ngettext("kept for %(n)d day after the run ended", "kept for %(n)d days after the run ended", days) % {
        "n": days
    }
