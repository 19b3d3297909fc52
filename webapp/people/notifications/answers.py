"""Verdicts on a service's answer: delivered, worth another try, or wrong until a person changes something.

Feishu and DingTalk answer 200 with a code in the body, Slack 200 with ``ok``, Discord 204; a 429 names its pause in
``Retry-After``. What the service said is shown to people, without the secret and the address or parts of it, which it
may repeat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from training.addresses import AddressRefused
from training.errors import TiltyardError
from training.redaction import address_secrets, redact, without
from training.words import Sentence, _, sentence
from webapp.common.outbound import Answer, OutboundRefused
from webapp.common.text import clean_text
from webapp.people.notifications.models import ChannelKind
from webapp.people.notifications.secret_files import Webhook

MAX_SAID_CHARS = 200
MAX_CODE = 10**9
BUSY = 429
DELIVERED = _("Delivered.")
PAGE = _("a web page")
NOTHING_SAID = _("nothing")
NOT_OK = _("Slack answers “ok” to what it accepts; check the address. This server said: {said}")
STRANGE = _("This is no answer of this service; check the kind and the address. It said: {said}")
OTHER_CODE = _("The service did not accept the message (code {code}). It said: {said}")


class Verdict(NamedTuple):
    """The result of one try. ``again``: another one may succeed, after ``after_s`` seconds where the service said
    so."""

    ok: bool
    told: Sentence
    again: bool = False
    after_s: float | None = None
    busy: bool = False


def verdict_of(kind: str, reply: Answer, webhook: Webhook) -> Verdict:
    """The verdict on an answer of a service of this kind."""
    said = _shown_answer(reply.body, webhook)
    if 200 <= reply.status < 300:
        return _JUDGES[ChannelKind(kind)](reply, said)
    return _verdict_of_status(reply, said)


def verdict_of_failure(error: TiltyardError) -> Verdict:
    """The verdict where no answer came: only an address that may not be reached is final.

    The error was raised in English, so that its sentence can be translated.
    """
    cause = error.__cause__ if isinstance(error.__cause__, AddressRefused) else error
    told = sentence(cause.message)
    if cause.hint:
        told = sentence("{what} {hint}", what=told, hint=sentence(cause.hint))
    return Verdict(False, told, again=not isinstance(error, OutboundRefused))


def _verdict_of_status(reply: Answer, said: Sentence) -> Verdict:
    status = reply.status
    if status == BUSY:
        return _too_many(_after_s(reply))
    if status == 408 or status >= 500:
        told = sentence(_("The server failed (HTTP {status}). It said: {said}"), status=status, said=said)
        return Verdict(False, told, again=True, after_s=_after_s(reply))
    if 300 <= status < 400:
        return Verdict(False, sentence(_("The server redirects elsewhere, and redirects are not followed.")))
    if status in (401, 403):
        template = _("The server refuses us (HTTP {status}); check the address and the secret. It said: {said}")
    elif status in (404, 410):
        template = _("No such webhook (HTTP {status}): it was deleted, or the address is wrong. It said: {said}")
    else:
        template = _("The server did not accept the message (HTTP {status}). It said: {said}")
    return Verdict(False, sentence(template, status=status, said=said))


def _too_many(after_s: float | None) -> Verdict:
    told = sentence(_("The service has had too many messages and asks to wait."))
    return Verdict(False, told, again=True, after_s=after_s, busy=True)


def _success() -> Verdict:
    return Verdict(True, sentence(DELIVERED))


def _any_success(_reply: Answer, _shown_answer: Sentence) -> Verdict:
    return _success()


def _slack_verdict(reply: Answer, said: Sentence) -> Verdict:
    return _success() if reply.body.strip() == b"ok" else Verdict(False, sentence(NOT_OK, said=said))


# Codes of the two services that put them into the body of a 200: what to do about each.
FEISHU_CODES = {
    19021: _("Feishu does not accept the signature: the secret is wrong, or this server's clock is. It said: {said}"),
    19022: _("Feishu accepts messages for this robot only from listed IP addresses. It said: {said}"),
    19024: _("Feishu accepts only messages with the robot's keywords; use signing instead. It said: {said}"),
    19001: _("Feishu knows no such robot: it was removed, or the address is wrong. It said: {said}"),
}
FEISHU_BUSY = {11232, 11233}
DINGTALK_CODES = {
    310000: _("The robot's security settings refuse it (signature, keywords or IP addresses). It said: {said}"),
    300001: _("DingTalk knows no such robot: it was removed, or the address is wrong. It said: {said}"),
    300005: _("DingTalk knows no such robot: it was removed, or the address is wrong. It said: {said}"),
}
DINGTALK_BUSY = {130101, 410100}
SYSTEM_BUSY = -1


def _feishu_verdict(reply: Answer, said: Sentence) -> Verdict:
    answer = _json_object(reply.body)
    return _verdict_of_code(answer.get("code", answer.get("StatusCode")), said, FEISHU_CODES, FEISHU_BUSY)


def _dingtalk_verdict(reply: Answer, said: Sentence) -> Verdict:
    return _verdict_of_code(_json_object(reply.body).get("errcode"), said, DINGTALK_CODES, DINGTALK_BUSY)


def _verdict_of_code(code: Any, said: Sentence, codes: Mapping[int, str], busy: set[int]) -> Verdict:
    if code == 0 and not isinstance(code, bool):
        return _success()
    if not isinstance(code, int) or isinstance(code, bool) or abs(code) > MAX_CODE:
        return Verdict(False, sentence(STRANGE, said=said))
    if code in busy:
        return _too_many(None)
    told = sentence(codes.get(code, OTHER_CODE), said=said, code=code)
    return Verdict(False, told, again=code == SYSTEM_BUSY)


_JUDGES: dict[ChannelKind, Callable[[Answer, Sentence], Verdict]] = {
    ChannelKind.SLACK: _slack_verdict,
    ChannelKind.FEISHU: _feishu_verdict,
    ChannelKind.DINGTALK: _dingtalk_verdict,
    ChannelKind.DISCORD: _any_success,
    ChannelKind.JSON: _any_success,
}


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown_answer(body: bytes, webhook: Webhook) -> Sentence:
    """The beginning of an answer in one line, without secrets; for a web page only that it is one."""
    told = without(body.decode("utf-8", "replace"), (*address_secrets(webhook.url), webhook.secret), "…")
    text = " ".join(clean_text(redact(told)).split())
    if text[:500].lower().startswith(("<!doctype", "<html", "<?xml")):
        return sentence(PAGE)
    return Sentence("{text}", {"text": text[:MAX_SAID_CHARS]}) if text else sentence(NOTHING_SAID)


def _after_s(reply: Answer) -> float | None:
    """Seconds to wait: ``Retry-After`` as a number or a date, or the ``retry_after`` of Discord's body."""
    raw: Any = reply.headers.get("retry-after", _json_object(reply.body).get("retry_after"))
    try:
        found = float(raw)
    except (TypeError, ValueError):
        try:
            moment = parsedate_to_datetime(str(raw))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = (moment - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return None
    return max(0.0, found) if math.isfinite(found) else None
