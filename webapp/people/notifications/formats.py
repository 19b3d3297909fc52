"""Messages to services: their form, their signature, and the addresses and secrets that these need."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.utils.translation import gettext as _

from webapp.common.secrets.models import Kind as Secrets
from webapp.common.secrets.vault import secret_of, secret_set
from webapp.people.notifications.models import ChannelKind, Kind
from webapp.people.notifications.words import Message

# Addresses and secrets of channels: encrypted, and never shown again.
#
# Anyone who knows the address of a webhook may post there, so all of it but the host is as secret as the key.


class Webhook(NamedTuple):
    """Where to post, and what to sign with; the secret may be empty."""

    url: str
    secret: str


def webhook_write(channel_id: UUID, webhook: Webhook) -> None:
    """Keep them."""
    secret_set(Secrets.WEBHOOK, channel_id, json.dumps(webhook._asdict()))


def webhook_of(channel_id: UUID) -> Webhook | None:
    """Address and secret, or ``None`` where there are none. Raises ``SecretUnreadable``."""
    found = secret_of(Secrets.WEBHOOK, channel_id)
    return Webhook(**json.loads(found)) if found else None


# A message in the form of each service: body, headers, and how it is signed.
#
# - Slack: blocks of plain text, so that nothing in a name is read as markup; ``text`` is for services of the same form.
# - Feishu: a post. The signature is an HMAC of nothing, keyed with ``timestamp\nsecret``, in seconds, inside the body.
# - DingTalk: plain text. The signature is an HMAC of ``timestamp\nsecret``, keyed with the secret, in milliseconds;
#   both go into the address.
# - Discord: one embed, whose description is Markdown and is escaped; it mentions no person.
# - JSON: our own. ``X-Tiltyard-Signature`` is ``sha256=`` and the HMAC of ``timestamp.body`` in hex.

JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Accept": "application/json, text/plain"}
SLACK_TITLE, SLACK_TEXT, DISCORD_TITLE, DISCORD_TEXT = 150, 3000, 256, 4096
GOOD, BAD, WAITING, OTHER = 0x2E7D4F, 0xB3261E, 0xB26A00, 0x3B6FB6
COLOURS = {
    Kind.RUN_SUCCEEDED: GOOD,
    Kind.EVALUATION_READY: GOOD,
    Kind.RUN_FAILED: BAD,
    Kind.RUN_PAUSED: WAITING,
}
_MARKS = re.compile(r"([\\`*_~|>#\[\]()<])")


class Post(NamedTuple):
    """The request that is sent."""

    url: str
    body: bytes
    headers: dict[str, str]


def post_of(kind: str, message: Message, webhook: Webhook, *, now: float | None = None) -> Post:
    """The message as this kind of service takes it; ``now`` is the time that a signature names, in seconds."""
    return _FORMS[ChannelKind(kind)](message, webhook, time.time() if now is None else now)


def _json_post(url: str, body: dict[str, Any], more: dict[str, str] | None = None) -> Post:
    return Post(url, json.dumps(body, ensure_ascii=False).encode(), JSON_HEADERS | (more or {}))


def _plain_text(message: Message) -> str:
    return "\n".join([message.title, *message.lines, f"{message.project} · {message.url}"])


def _hmac_sha256(key: str, text: str) -> bytes:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()


def _slack_post(message: Message, webhook: Webhook, _now: float) -> Post:
    def plain(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    def block(kind: str, text: str) -> dict[str, Any]:
        return {"type": kind, "text": {"type": "plain_text", "text": text, "emoji": False}}

    blocks = [block("header", message.title[:SLACK_TITLE])]
    if message.lines:
        blocks.append(block("section", "\n".join(message.lines)[:SLACK_TEXT]))
    link = f"{plain(message.project)} · <{message.url}|{plain(_('Open in Tiltyard'))}>"
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]})
    return _json_post(
        webhook.url, {"text": plain(_plain_text(message))[:SLACK_TEXT], "mrkdwn": False, "blocks": blocks}
    )


def _feishu_post(message: Message, webhook: Webhook, now: float) -> Post:
    lines = [[{"tag": "text", "text": line}] for line in [*message.lines, message.project]]
    lines.append([{"tag": "a", "text": _("Open in Tiltyard"), "href": message.url}])
    body: dict[str, Any] = {
        "msg_type": "post",
        "content": {"post": {"zh_cn": {"title": message.title, "content": lines}}},
    }
    if webhook.secret:
        stamp = str(int(now))
        signature = base64.b64encode(_hmac_sha256(f"{stamp}\n{webhook.secret}", "")).decode()
        body |= {"timestamp": stamp, "sign": signature}
    return _json_post(webhook.url, body)


def _dingtalk_post(message: Message, webhook: Webhook, now: float) -> Post:
    url = webhook.url
    if webhook.secret:
        stamp = str(int(now * 1000))
        signature = base64.b64encode(_hmac_sha256(webhook.secret, f"{stamp}\n{webhook.secret}")).decode()
        url += ("&" if "?" in url else "?") + urlencode({"timestamp": stamp, "sign": signature})
    return _json_post(url, {"msgtype": "text", "text": {"content": _plain_text(message)}, "at": {"isAtAll": False}})


def _discord_post(message: Message, webhook: Webhook, _now: float) -> Post:
    embed = {
        "title": message.title[:DISCORD_TITLE],
        "url": message.url,
        "description": _MARKS.sub(r"\\\1", "\n".join(message.lines))[:DISCORD_TEXT],
        "color": COLOURS.get(message.kind, OTHER),  # type: ignore[call-overload]
        "timestamp": message.at,
        "footer": {"text": message.project},
    }
    return _json_post(webhook.url, {"embeds": [embed], "allowed_mentions": {"parse": []}})


def _own_post(message: Message, webhook: Webhook, now: float) -> Post:
    body = {
        "id": message.id,
        "event": message.kind,
        "at": message.at,
        "project": {"slug": message.slug, "name": message.project},
        "title": message.title,
        "text": "\n".join(message.lines),
        "url": message.url,
        "data": message.facts,
    }
    stamp = str(int(now))
    more = {"X-Tiltyard-Event": message.kind, "X-Tiltyard-Delivery": message.id, "X-Tiltyard-Timestamp": stamp}
    post = _json_post(webhook.url, body, more)
    if webhook.secret:
        signed = _hmac_sha256(webhook.secret, f"{stamp}.{post.body.decode()}").hex()
        post.headers["X-Tiltyard-Signature"] = f"sha256={signed}"
    return post


_FORMS: dict[ChannelKind, Callable[[Message, Webhook, float], Post]] = {
    ChannelKind.SLACK: _slack_post,
    ChannelKind.FEISHU: _feishu_post,
    ChannelKind.DINGTALK: _dingtalk_post,
    ChannelKind.DISCORD: _discord_post,
    ChannelKind.JSON: _own_post,
}
