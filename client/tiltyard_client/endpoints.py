"""``tiltyard endpoint``: OpenAI-compatible servers as contestants."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tiltyard_client import completing, show
from tiltyard_client.api import Json
from tiltyard_client.base import MISUSED, REFUSED, AsJson, Project, confirm, end, hidden, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="OpenAI-compatible servers as contestants.")
KEY_VARIABLE = "TILTYARD_ENDPOINT_KEY"
EndpointName = Annotated[str, typer.Argument(help="The endpoint's name.", autocompletion=completing.endpoints)]


class ToolFormat(StrEnum):
    """How tools are described to the server."""

    native = "native"
    text = "text"


@app.command("list")
def endpoint_list(project: Project = "", as_json: AsJson = False) -> None:
    """The endpoints of the project, with what was used of them."""
    with site_of(project) as site:
        rows = site.endpoints()
    if as_json:
        return print_json(rows)
    shown = [
        {
            **row,
            "state": show.state(row["state"]),
            "today": f"{row['used_today']['tokens']:,}",
            "used": f"{row['used']['tokens']:,}",
            "cost": money(row),
        }
        for row in rows
    ]
    columns = {"name": _("endpoint"), "model": _("model"), "url": _("address"), "has_key": _("key")}
    columns |= {"state": _("last test"), "today": _("tokens today"), "used": _("tokens"), "cost": _("cost")}
    show.table(shown, columns)


@app.command("add")
def endpoint_add(
    name: Annotated[str, typer.Argument(help="What jobs call it: endpoint:NAME.")],
    url: Annotated[str, typer.Option(help="Its address up to the version, such as https://host/v1.")],
    model: Annotated[str, typer.Option(help="What the server calls its model.")],
    no_key: Annotated[bool, typer.Option("--no-key", help="It needs no key: do not ask for one.")] = False,
    tool_format: Annotated[ToolFormat, typer.Option(help="Tool calls by the API, or in the text.")] = ToolFormat.native,
    context_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens that fit into its context.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 8,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds that one request may take.")] = 120.0,
    price_in: Annotated[float | None, typer.Option(min=0, help="Of a million tokens that it reads.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Of a million tokens that it writes.")] = None,
    currency: Annotated[str, typer.Option(help="Of prices and limits, such as USD.")] = "",
    max_run_tokens: Annotated[int | None, typer.Option(min=1, help="Limit of a run.")] = None,
    max_run_cost: Annotated[float | None, typer.Option(min=0, help="Limit of a run.")] = None,
    max_day_tokens: Annotated[int | None, typer.Option(min=1, help="Limit of a day.")] = None,
    max_day_cost: Annotated[float | None, typer.Option(min=0, help="Limit of a day.")] = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Add an endpoint. Its key comes from TILTYARD_ENDPOINT_KEY or from the input, never from the command line."""
    optional: Json = {
        "context_tokens": context_tokens,
        "price_in": price_in,
        "price_out": price_out,
        "currency": currency or None,
        "max_run_tokens": max_run_tokens,
        "max_run_cost": max_run_cost,
        "max_day_tokens": max_day_tokens,
        "max_day_cost": max_day_cost,
        "key": None if no_key else _key(),
    }
    values: Json = {"name": name, "url": url, "model": model, "tool_format": tool_format.value}
    values |= {option: value for option, value in optional.items() if value is not None}
    with site_of(project) as site:
        made = site.endpoint_add(**values, concurrency=concurrency, timeout_s=timeout_s)
    if as_json:
        print_json(made)
    else:
        print(_("{reference} was added. Try it: tiltyard endpoint test {name}").format(**made))


@app.command("test")
def endpoint_test(endpoint: EndpointName, project: Project = "", as_json: AsJson = False) -> None:
    """Ask an endpoint one tiny chat with a tool. Exit code 1 where it does not work."""
    with site_of(project) as site:
        found = site.endpoint_test(site.endpoint(endpoint)["id"])
    if as_json:
        print_json(found)
    else:
        print(f"{found['name']}: {show.state(found['state'])}")
        for finding in found["findings"]:
            show.console.print(f"  {finding['sentence']} {finding['hint']}".rstrip(), markup=False)
    if found["state"] == "bad":
        raise typer.Exit(REFUSED)


@app.command("delete")
def endpoint_delete(
    endpoint: EndpointName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Delete an endpoint with its key. Records of runs that asked it stay."""
    with site_of(project) as site:
        found = site.endpoint(endpoint)
        confirm(_("Delete {name} with its key?").format(name=found["reference"]), yes)
        gone = site.endpoint_delete(found["id"])
    print_json(gone) if as_json else print(_("{name} was deleted.").format(name=gone["deleted"]))


def money(row: Json) -> str | None:
    """The total cost of an endpoint; nothing where it has no price."""
    cost = row["used"]["cost"]
    return None if cost is None else f"{cost:.4g} {row['currency']}".rstrip()


def _key() -> str:
    return hidden(KEY_VARIABLE, _("Key")) or end(_("No key was given. --no-key says that it needs none."), MISUSED)
