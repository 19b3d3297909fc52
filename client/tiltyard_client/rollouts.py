"""``tiltyard rollout`` and ``tiltyard vote``: end a rollout, go on from a turn of one, and list blind votes."""

from __future__ import annotations

from typing import Annotated

import typer

from tiltyard_client import show
from tiltyard_client.base import AsJson, Project, contestant_named, print_json, site_of
from tiltyard_client.watching import follow
from tiltyard_client.words import gettext as _

# ``tiltyard rollout``: end one in flight, and go on from a turn of a recorded one.

app = typer.Typer(no_args_is_help=True, help="Rollouts: end one in flight, continue from a turn of a recorded one.")
RolloutId = Annotated[str, typer.Argument(help="The rollout's id, as its page's address has it.")]


@app.command("end")
def rollout_end(rollout: RolloutId, as_json: AsJson = False) -> None:
    """End a rollout in flight: it is excluded, and nothing is learned from it."""
    _order(rollout, "end", as_json)


@app.command("fail")
def rollout_fail(rollout: RolloutId, as_json: AsJson = False) -> None:
    """End a rollout in flight: it counts as failed."""
    _order(rollout, "fail", as_json)


def _order(rollout: str, act: str, as_json: bool) -> None:
    with site_of("") as site:
        found = site.rollout_order(rollout, act)
    print_json(found) if as_json else print(_("The order was sent to the trainer."))


@app.command("continue")
def rollout_continue(
    rollout: RolloutId,
    turn: Annotated[int, typer.Option(help="The policy's turn that is played otherwise, from 1.", min=1)],
    contestant: Annotated[
        str,
        typer.Option(help="A model's name, endpoint:NAME, policy:NAME, or run:NAME of a model that is not registered."),
    ],
    times: Annotated[int, typer.Option(help="How often, 1 to 16.", min=1, max=16)] = 4,
    temperature: Annotated[float | None, typer.Option(help="Instead of the recorded run's.", min=0.01, max=5.0)] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay until it ends. Ctrl-C leaves it running.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a contestant continue from a turn of a recorded rollout; its rollouts are branches."""
    with site_of("") as site:
        made = site.rollout_continue(rollout, turn, contestant_named(contestant), times, temperature)
        follow(site, made, watch, as_json)


@app.command("branches")
def rollout_branches(rollout: RolloutId, as_json: AsJson = False) -> None:
    """Branches from the turns of a rollout, the newest first."""
    with site_of("") as site:
        rows = site.rollout_branches(rollout)
    columns = {
        "turn": _("from turn"),
        "who": _("played by"),
        "outcome": _("outcome"),
        "turns": _("turns"),
        "reward": _("reward"),
    }
    named = [row | {"who": row["player"] or row["by"] or "–"} for row in rows]
    print_json(rows) if as_json else show.table(named, columns)


# ``tiltyard vote``: blind votes. Voting itself needs the two transcripts side by side: it is done in the browser.

vote_app = typer.Typer(no_args_is_help=True, help="Blind votes.")


@vote_app.command("list")
def vote_list(project: Project = "", as_json: AsJson = False) -> None:
    """The vote rounds of the project, newest first, and how many ballots you have left."""
    with site_of(project) as site:
        rows, url = site.vote_rounds(), site.url
    if as_json:
        return print_json(rows)
    shown = [
        {
            **row,
            "state": _("open") if row["open"] else _("closed"),
            "left": row["left"] if row["asked"] else None,
            "page": f"{url}{row['url']}",
        }
        for row in rows
    ]
    columns = {"name": _("vote round"), "state": _("state"), "done": _("your votes"), "left": _("left")}
    show.table(shown, columns | {"page": _("page")})
