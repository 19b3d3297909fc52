"""Testing an endpoint: does it list its models, answer one tiny chat, and call a tool?

What is found is kept as codes with values, so that every reader has it in their language (``FINDINGS``).
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.connections import reaching
from training.errors import (
    EndpointAway,
    EndpointBusy,
    EndpointFault,
    EndpointKeyRefused,
    EndpointRefused,
    EndpointTimeout,
    SecretUnreadable,
    TiltyardError,
)
from training.rollout.endpoint import Tried, try_out
from webapp.common.outbound import access, fetch, target_of
from webapp.common.text import clean_text
from webapp.endpoints.models import Endpoint, ToolFormat
from webapp.endpoints.services import key_of
from webapp.endpoints.spending import turn_used

TEST_LIMIT_S = 25.0
MODELS_LIMIT_S = 5.0
MODELS_KEPT = 50
OK, DOUBT, BAD = "ok", "doubt", "bad"


class Words(NamedTuple):
    """The texts of a finding: its level, its sentence, and what to do."""

    state: str
    sentence: str
    hint: str = ""


FINDINGS: dict[str, Words] = {
    "address": Words(
        BAD,
        gettext_noop("The address may not be reached: %(detail)s"),
        gettext_noop("Correct the address, or ask the administrator to allow it."),
    ),
    "models": Words(OK, gettext_noop("It lists %(count)s models, and this one is among them.")),
    "model_unlisted": Words(
        DOUBT,
        gettext_noop("It lists %(count)s models, and not this one: %(names)s."),
        gettext_noop("Compare the name of the model with the list."),
    ),
    "no_models": Words(OK, gettext_noop("It does not list its models; nothing depends on that.")),
    "answers": Words(
        OK, gettext_noop("It answered within %(seconds)s s: %(prompt)s tokens read, %(sampled)s written.")
    ),
    "uncounted": Words(
        DOUBT,
        gettext_noop("It answered within %(seconds)s s, but did not count its tokens."),
        gettext_noop("Limits and costs of runs will be estimates."),
    ),
    "miscounted": Words(
        DOUBT,
        gettext_noop("It answered within %(seconds)s s, but its token counts are not numbers: %(detail)s."),
        gettext_noop("Limits and costs of runs will be estimates."),
    ),
    "key": Words(BAD, gettext_noop("It refuses the key (401)."), gettext_noop("Enter the key again.")),
    "key_unreadable": Words(
        BAD,
        gettext_noop("Its key cannot be read with this site's secret key, so nothing was sent."),
        gettext_noop("Enter the key again, or ask the operator for the earlier secret key."),
    ),
    "no_key": Words(BAD, gettext_noop("It asks for a key (401)."), gettext_noop("Enter a key.")),
    "forbidden": Words(
        BAD,
        gettext_noop("It refuses the request (%(status)s): %(detail)s"),
        gettext_noop("Look at what the key may do there, and whether the account is paid for."),
    ),
    "unknown": Words(
        BAD,
        gettext_noop("It knows no such model or address (404): %(detail)s"),
        gettext_noop("Correct the name of the model; the address ends with the version, such as /v1."),
    ),
    "busy": Words(
        BAD,
        gettext_noop("It takes no more requests now (429), and asks to wait %(seconds)s s."),
        gettext_noop("Test again later; fewer requests at once may help runs."),
    ),
    "down": Words(
        BAD, gettext_noop("It cannot be reached: %(detail)s"), gettext_noop("Start the server, or correct the address.")
    ),
    "slow": Words(
        BAD,
        gettext_noop("It did not answer within %(seconds)s s."),
        gettext_noop("A model that is only now loaded takes long: test again in a minute."),
    ),
    "html": Words(
        BAD,
        gettext_noop("It answered with a web page (HTML) instead of JSON."),
        gettext_noop("The address is that of a page: use the one of the API, which ends with the version."),
    ),
    "empty": Words(
        BAD, gettext_noop("Its answer was empty."), gettext_noop("Look at the server's log; the address may be wrong.")
    ),
    "other": Words(
        BAD,
        gettext_noop("Its answer is no chat completion: %(detail)s"),
        gettext_noop("Check that the address belongs to an OpenAI-compatible server."),
    ),
    "calls": Words(OK, gettext_noop("It called the tool, and the call can be read.")),
    "no_call": Words(
        DOUBT,
        gettext_noop("It answered without calling the tool."),
        gettext_noop("Try the other form of tool calls; a small model may just not have called it."),
    ),
    "bad_call": Words(
        DOUBT,
        gettext_noop("Its tool call cannot be read: %(detail)s"),
        gettext_noop("In runs such calls count as format errors. Try the other form of tool calls."),
    ),
}


class Finding(NamedTuple):
    """One finding in the reader's words."""

    state: str
    sentence: str
    hint: str


def endpoint_test(endpoint: Endpoint) -> Endpoint:
    """Test it, keep the findings and its use, and return the updated endpoint."""
    found, used = _run_test(endpoint)
    now = timezone.now()
    states = {FINDINGS[item["code"]].state for item in found}
    outcome = {"state": BAD if BAD in states else DOUBT if DOUBT in states else OK, "findings": found}
    Endpoint.objects.filter(pk=endpoint.pk).update(test=outcome, tested_at=now)
    if used is not None:
        read, written_tokens = used
        turn_used(endpoint, read=read, written=written_tokens)
    endpoint.refresh_from_db()
    return endpoint


def findings_of(endpoint: Endpoint) -> list[Finding]:
    """The findings of the last test, in the reader's language."""
    items = (endpoint.test or {}).get("findings", [])
    return [_finding_of(item["code"], item.get("values", {})) for item in items if item["code"] in FINDINGS]


def _finding_of(code: str, values: dict[str, Any]) -> Finding:
    words = FINDINGS[code]
    return Finding(words.state, _(words.sentence) % values, _(words.hint) if words.hint else "")


def _stored_finding(code: str, **values: Any) -> dict[str, Any]:
    kept = {name: clean_text(value)[:300] if isinstance(value, str) else value for name, value in values.items()}
    return {"code": code, "values": kept}


def _run_test(endpoint: Endpoint) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
    """Findings in order, and the tokens that it read and wrote."""
    try:
        key = key_of(endpoint.pk)
    except SecretUnreadable:
        return [_stored_finding("key_unreadable")], None
    try:
        target_of(endpoint.url)
    except TiltyardError as exc:
        return [_stored_finding("address", detail=exc.message)], None
    limit_s = min(endpoint.timeout_s, TEST_LIMIT_S)
    began = time.monotonic()
    try:
        with reaching(access("")):
            tried = try_out(
                endpoint.url,
                endpoint.model,
                key=key,
                timeout_s=limit_s,
                tools_in_words=endpoint.tool_format == ToolFormat.TEXT,
                who=_("The endpoint"),
            )
    except EndpointFault as exc:
        return [_fault_finding(exc, key, limit_s)], None
    seconds = round(time.monotonic() - began, 2)
    found = [_count_finding(tried, seconds), _call_finding(tried), _models_finding(endpoint, key)]
    return found, (tried.read, tried.written)


def _count_finding(tried: Tried, seconds: float) -> dict[str, Any]:
    """The finding that it answered, and whether it counted its tokens."""
    if tried.doubt:
        return _stored_finding("miscounted", seconds=seconds, detail=tried.doubt)
    if not tried.read or not tried.written:
        return _stored_finding("uncounted", seconds=seconds)
    return _stored_finding("answers", seconds=seconds, prompt=tried.read, sampled=tried.written)


def _fault_finding(exc: EndpointFault, key: str, limit_s: float) -> dict[str, Any]:
    """The finding for a failed request."""
    match exc:
        case EndpointKeyRefused():
            return _stored_finding("key" if key else "no_key")
        case EndpointRefused() if exc.status == 404:
            return _stored_finding("unknown", detail=exc.message)
        case EndpointRefused() if exc.status:
            return _stored_finding("forbidden", status=exc.status, detail=exc.message)
        case EndpointRefused():
            return _stored_finding("address", detail=exc.message)
        case EndpointBusy():
            return _stored_finding("busy", seconds=round(exc.wait_s or 0))
        case EndpointAway():
            return _stored_finding("down", detail=exc.message)
        case EndpointTimeout():
            return _stored_finding("slow", seconds=round(limit_s))
    return _stored_finding(exc.instead or "other", **({"detail": exc.message} if exc.instead in ("", "other") else {}))


def _call_finding(tried: Tried) -> dict[str, Any]:
    """The finding on whether the answer calls the tool so that a run could read it."""
    if tried.problem:
        return _stored_finding("bad_call", detail=tried.problem)
    return _stored_finding("calls" if tried.called else "no_call")


def _models_finding(endpoint: Endpoint, key: str) -> dict[str, Any]:
    """The finding on the server's list of models, which many servers do not have."""
    try:
        reply = fetch(f"{endpoint.url}/models", token=key, total_s=MODELS_LIMIT_S)
        listed = json.loads(reply.body)["data"] if reply.status == 200 else []
        names = [str(item["id"]) for item in listed]
    except (TiltyardError, ValueError, KeyError, TypeError, RecursionError):
        return _stored_finding("no_models")
    if not names:
        return _stored_finding("no_models")
    if endpoint.model in names:
        return _stored_finding("models", count=len(names))
    return _stored_finding("model_unlisted", count=len(names), names=", ".join(names[:MODELS_KEPT]))
