"""Waiting until recorded rollouts are scored by a spec."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import Progress

from tiltyard_client.api import Json, Tiltyard
from tiltyard_client.base import MISUSED, NOT_SUCCEEDED, REFUSED, confirm, end, errors
from tiltyard_client.words import gettext as _


def rescored(site: Tiltyard, runs: Sequence[str], spec: str, found: Json, *, yes: bool, quiet: bool) -> Json:
    """The comparison once a worker has computed what its evaluations have not recorded of the spec."""
    if not spec:
        end(_("--rescore needs --spec: which spec shall score the rollouts?"), MISUSED)
    offer = found.get("to_score")
    if offer is None:  # nothing lacks
        return found
    if offer["refusal"]:
        end(offer["refusal"], REFUSED)
    if offer["asks"]:
        confirm(_("{asks} Continue?").format(asks=offer["asks"]), yes)
    begun = site.rescore(runs, spec, confirmed=bool(offer["asks"]))
    last = begun
    with Progress(console=errors, disable=quiet) as progress:
        bar = progress.add_task(_("rollouts scored"), total=None)
        for last in site.watch_rescoring(begun["id"]):
            progress.update(bar, completed=last["done"], total=last["total"] or None)
    if last["state"] != "done":
        end(last["error"] or _("The scoring was cancelled; what was scored is kept."), NOT_SUCCEEDED)
    return site.compare(runs, spec)
