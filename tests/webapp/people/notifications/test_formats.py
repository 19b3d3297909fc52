"""What each service is sent, by value. The signatures were made with ``openssl dgst -hmac``, not with the code here."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from webapp.people.notifications.formats import Webhook, post_of
from webapp.people.notifications.words import Message

URL = "https://example.org/hook?access_token=abc"
MESSAGE = Message(
    id="11111111-2222-3333-4444-555555555555",
    kind="run_failed",
    at="2026-11-22T20:00:00+00:00",
    project="Joust",
    slug="joust",
    title="Run “a*b_c<!channel>” failed",
    lines=["The disk is full.", "Free space & resume [here](http://evil)."],
    url="http://127.0.0.1:8000/p/joust/runs/1/",
    facts={"step": 3},
)


def body(kind: str, secret: str = "", now: float = 1_700_000_000.123) -> Any:
    return json.loads(post_of(kind, MESSAGE, Webhook(URL, secret), now=now).body)


def test_slack_gets_plain_text_blocks_in_which_no_name_is_markup() -> None:
    made = body("slack")
    header, section, context = made["blocks"]
    assert header == {
        "type": "header",
        "text": {"type": "plain_text", "text": "Run “a*b_c<!channel>” failed", "emoji": False},
    }
    assert section["text"]["text"] == "The disk is full.\nFree space & resume [here](http://evil)."
    assert context["elements"][0]["text"] == "Joust · <http://127.0.0.1:8000/p/joust/runs/1/|Open in Tiltyard>"
    assert "<!channel>" not in made["text"] and "&lt;!channel&gt;" in made["text"] and "&amp; resume" in made["text"]


def test_feishu_gets_a_post_and_a_signature_keyed_with_time_and_secret() -> None:
    made = body("feishu", "feishu-secret")
    assert (made["msg_type"], made["timestamp"]) == ("post", "1700000000")
    assert made["sign"] == "OrBzY1Y01Gq+HgJsl+7OfWcMVwc7YocohQm5iiZwjhU="
    post = made["content"]["post"]["zh_cn"]
    assert post["title"] == MESSAGE.title
    assert post["content"] == [
        [{"tag": "text", "text": "The disk is full."}],
        [{"tag": "text", "text": "Free space & resume [here](http://evil)."}],
        [{"tag": "text", "text": "Joust"}],
        [{"tag": "a", "text": "Open in Tiltyard", "href": MESSAGE.url}],
    ]
    assert "sign" not in body("feishu") and "timestamp" not in body("feishu")


def test_dingtalk_gets_text_and_a_signature_in_the_address() -> None:
    post = post_of("dingtalk", MESSAGE, Webhook(URL, "SECding"), now=1_700_000_000.123)
    query = parse_qs(urlsplit(post.url).query)
    assert query == {
        "access_token": ["abc"],
        "timestamp": ["1700000000123"],
        "sign": ["w2sRr5ajTnvQ7A9ms+kHfhfJ0Eci3+pVNL/C4j+nBrs="],
    }
    assert "%2B" in post.url and "%2F" in post.url  # plus and slash would be read as something else
    made = json.loads(post.body)
    assert made["msgtype"] == "text" and made["at"] == {"isAtAll": False}
    assert made["text"]["content"].splitlines() == [MESSAGE.title, *MESSAGE.lines, f"Joust · {MESSAGE.url}"]
    assert post_of("dingtalk", MESSAGE, Webhook(URL, "")).url == URL


def test_discord_gets_an_embed_without_mentions() -> None:
    made = body("discord")
    assert made["allowed_mentions"] == {"parse": []} and "content" not in made
    (embed,) = made["embeds"]
    assert (embed["title"], embed["url"], embed["color"]) == (MESSAGE.title, MESSAGE.url, 0xB3261E)
    assert embed["description"] == "The disk is full.\nFree space & resume \\[here\\]\\(http://evil\\)."
    assert (embed["footer"], embed["timestamp"]) == ({"text": "Joust"}, "2026-11-22T20:00:00+00:00")


def test_json_is_signed_with_its_time_over_the_very_bytes() -> None:
    post = post_of("json", MESSAGE, Webhook(URL, "k" * 32), now=1_700_000_000.9)
    expected = hmac.new(b"k" * 32, b"1700000000." + post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Tiltyard-Signature"] == f"sha256={expected}"
    assert post.headers["X-Tiltyard-Timestamp"] == "1700000000"
    assert post.headers["X-Tiltyard-Delivery"] == MESSAGE.id
    assert json.loads(post.body) == {
        "id": MESSAGE.id,
        "event": "run_failed",
        "at": "2026-11-22T20:00:00+00:00",
        "project": {"slug": "joust", "name": "Joust"},
        "title": MESSAGE.title,
        "text": "The disk is full.\nFree space & resume [here](http://evil).",
        "url": MESSAGE.url,
        "data": {"step": 3},
    }
    assert "X-Tiltyard-Signature" not in post_of("json", MESSAGE, Webhook(URL, "")).headers


@pytest.mark.parametrize(("kind", "where"), [("slack", "blocks"), ("discord", "embeds")])
def test_long_texts_are_cut_to_what_the_service_takes(kind: str, where: str) -> None:
    long = MESSAGE._replace(title="t" * 500, lines=["l" * 9000])
    made = json.loads(post_of(kind, long, Webhook(URL, "")).body)[where]
    if kind == "slack":
        assert [len(block["text"]["text"]) for block in made[:2]] == [150, 3000]
        assert len(json.loads(post_of(kind, long, Webhook(URL, "")).body)["text"]) == 3000
    else:
        assert (len(made[0]["title"]), len(made[0]["description"])) == (256, 4096)


def test_slack_gets_no_empty_block_where_there_are_no_lines() -> None:
    made = json.loads(post_of("slack", MESSAGE._replace(lines=[]), Webhook(URL, "")).body)
    assert [block["type"] for block in made["blocks"]] == ["header", "context"]


@pytest.mark.parametrize(
    ("kind", "colour"),
    [("run_succeeded", 0x2E7D4F), ("run_failed", 0xB3261E), ("run_paused", 0xB26A00), ("vote_asked", 0x3B6FB6)],
)
def test_discord_shows_the_kind_by_its_colour(kind: str, colour: int) -> None:
    (embed,) = json.loads(post_of("discord", MESSAGE._replace(kind=kind), Webhook(URL, "")).body)["embeds"]
    assert embed["color"] == colour
