"""What rules free, in sentences for the page, the API and the command line."""

from __future__ import annotations

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.retention.rules import Rule
from webapp.retention.services import Overview


def headline(found: Overview) -> str:
    """What the rules free now and within 30 days, in one sentence."""
    if not any(row.rule.limits for row in found.rows):
        return _("No rule: what runs leave is kept until a person deletes it.")
    values = {"now": filesizeformat(found.now_bytes), "n": found.now_runs, "later": filesizeformat(found.later_bytes)}
    text = ngettext(
        "The rules free %(now)s of %(n)d run now, and about %(later)s more within 30 days.",
        "The rules free %(now)s of %(n)d runs now, and about %(later)s more within 30 days.",
        found.now_runs,
    )
    return text % values


def evidence(found: Overview) -> list[str]:
    """How it was estimated, from how much, and what is in no figure."""
    said = []
    if any(row.rule.limits for row in found.rows):
        growth = sum(row.forecast.recent_bytes for row in found.rows if row.rule.limits)
        said.append(
            ngettext(
                "The 30 days are estimated: %(n)d run that ended in the last 30 days left %(size)s, and the next 30 "
                "are taken to bring as much.",
                "The 30 days are estimated: %(n)d runs that ended in the last 30 days left %(size)s, and the next 30 "
                "are taken to bring as much.",
                found.recent,
            )
            % {"n": found.recent, "size": filesizeformat(growth)}
        )
    if found.turns:
        said.append(
            _("Files are measured. The size of %(turns)s turns in the database is estimated from %(sampled)s of them.")
            % {"turns": f"{found.turns:,}", "sampled": f"{found.sampled:,}"}
        )
    if found.unmeasured:
        said.append(
            ngettext(
                "%(n)d run that has ended is not measured yet and is in no figure.",
                "%(n)d runs that have ended are not measured yet and are in no figure.",
                found.unmeasured,
            )
            % {"n": found.unmeasured}
        )
    return said


def freed_sentence(found: Overview) -> str:
    """What rules freed in the last 30 days."""
    if not found.freed_runs:
        return _("The rules have removed nothing in the last 30 days.")
    text = ngettext(
        "The rules freed %(size)s of %(n)d run in the last 30 days.",
        "The rules freed %(size)s of %(n)d runs in the last 30 days.",
        found.freed_runs,
    )
    return text % {"size": filesizeformat(found.freed), "n": found.freed_runs}


def rule_text(rule: Rule) -> str:
    """A rule in a few words."""
    parts = []
    if rule.days is not None:
        parts.append(ngettext("%(n)d day", "%(n)d days", rule.days) % {"n": rule.days})
    if rule.gib is not None:
        parts.append(_("%(n)d GiB") % {"n": rule.gib})
    return ", ".join(parts) or _("no limit")
