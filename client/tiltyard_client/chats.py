"""``tiltyard chat``: one question, one answer."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Annotated

import typer
from rich.status import Status

from tiltyard_client import completing
from tiltyard_client.api import Json, Refused, Tiltyard
from tiltyard_client.base import NOT_SUCCEEDED, AsJson, Project, end, errors, print_json, site_of
from tiltyard_client.words import gettext as _


def chat(
    model: Annotated[
        str,
        typer.Argument(
            help="A registered model's name, run:NAME, checkpoint:ID, or OWNER/NAME of Hugging Face.",
            autocompletion=completing.models,
        ),
    ],
    text: Annotated[str, typer.Argument(help="What to say; - reads it from the input.")],
    environment: Annotated[str, typer.Option(help="NAME of an environment whose tools it has.")] = "",
    system: Annotated[str, typer.Option(help="A system message.")] = "",
    temperature: Annotated[float | None, typer.Option(min=0, help="0 takes the likeliest token.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one model turn.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same answer.")] = None,
    wait_s: Annotated[float, typer.Option(min=1, help="Seconds to wait for the whole answer.")] = 600.0,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the chat afterwards; else the project keeps it.")] = (
        False
    ),
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Ask a model one thing and print its answer. Exit code 5 where it could not answer."""
    question = sys.stdin.read() if text == "-" else text
    source = model if ":" in model or "/" in model else f"model:{model}"
    given = {"system": system or None, "temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    with site_of(project) as site:
        parameters = {name: value for name, value in given.items() if value is not None}
        made = site.chat(source, environment=environment, **parameters)
        try:
            site.say(made["id"], question)
        except Refused:
            site.chat_delete(made["id"])  # it is empty
            raise
        try:
            found = _waited(site, made["id"], wait_s, quiet=as_json or not errors.is_terminal)
        finally:
            if forget:
                site.chat_delete(made["id"])
    answer = found["answers"][-1]
    print_json(found) if as_json else _printed(answer)
    if answer["state"] != "done":
        end(_why(answer), NOT_SUCCEEDED)


def _waited(site: Tiltyard, chat_id: str, wait_s: float, *, quiet: bool) -> Json:
    """The chat once it was answered. Who stops waiting stops the answer too: no one else reads it."""
    until = time.monotonic() + wait_s
    found: Json = {}
    with contextlib.nullcontext() if quiet else Status(_("waiting"), console=errors) as status:
        try:
            for found in site.listen(chat_id):
                if status is not None:
                    status.update(_waits(found))
                if time.monotonic() > until:
                    until = float("inf")
                    site.chat_stop(chat_id)
        except KeyboardInterrupt:
            site.chat_stop(chat_id)
            raise
    return found


def _waits(chat: Json) -> str:
    """The reason why an answer waits."""
    writes = chat["answers"][-1]
    waits = (chat.get("waits") or {}).get(writes["id"])
    if waits is None:
        return _("being written")
    if waits["why"] == "run" and waits.get("run"):
        return _("waiting for the run {run}").format(run=waits["run"])
    return {
        "no_worker": _("waiting: no worker is running"),
        "run": _("waiting for a run of another project"),
        "loading": _("loading the model"),
        "busy": _("waiting for other chats"),
    }.get(waits["why"], _("waiting"))


def _printed(answer: Json) -> None:
    """The messages as plain text: of each its text, its calls, and the tools' answers."""
    for message in answer["messages"]:
        if message.get("content"):
            print(message["content"] if message["role"] == "assistant" else f"< {message['content']}")
        for call in message.get("tool_calls") or []:
            print(f"> {call['name']} {call['arguments']}")
    if answer["partial"]:
        print(answer["partial"])
    ending = answer.get("ending") or {}
    if ending.get("why") == "length":
        errors.print(_("The answer ends at the limit of tokens; --max-tokens raises it."), style="dim")
    if ending.get("reward") is not None:
        errors.print(_("reward {reward}").format(reward=f"{ending['reward']:.4g}"), style="dim")


def _why(answer: Json) -> str:
    """Why there is no whole answer."""
    error = answer.get("error") or {}
    reasons = {
        "stopped": _("It was stopped before the answer was complete; --wait-s waits longer."),
        "cut": _("The answer was cut off: a run took the device, or the worker was lost. Ask again."),
    }
    return str(error.get("message") or reasons.get(answer["state"]) or _("It did not answer."))
