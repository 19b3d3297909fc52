"""A body that is too large is refused before it is read, also under ASGI, where Django would spool it first.

Each body is streamed to the application itself; what counts is how much of it the application asked for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone

from webapp.asgi import application
from webapp.common import serving
from webapp.people.body_limit import UPLOAD_ROUTES
from webapp.people.teams.models import ApiToken, Project, User
from webapp.people.teams.tokens import token_create

pytestmark = pytest.mark.django_db(transaction=True)
CHUNK, SMALL, LARGE = 50_000, 1024**2 + 64 * 1024, 10_000_000
FORM = b"multipart/form-data; boundary=x"
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'


@pytest.fixture(autouse=True)
def limits(settings: Any) -> Any:
    settings.MAX_UPLOAD_BYTES = LARGE
    yield
    serving.close_connections()


async def stream(
    path: str, *, cookie: str = "", token: str = "", kind: bytes = FORM, size: int = 10 * LARGE
) -> tuple[int, int]:
    """Status of the answer, and how many bytes of the body the application took."""
    taken, sent = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        body = HEAD if taken == 0 else b"x" * CHUNK
        if taken >= size:
            await asyncio.Event().wait()  # a client that has sent everything says nothing more
        taken += len(body)
        return {"type": "http.request", "body": body, "more_body": taken < size}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", kind), (b"cookie", f"tiltyard={cookie}".encode())]
    headers += [(b"authorization", token.encode())] if token else []
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("localhost", 8000), "client": ("127.0.0.1", 5)}
    await application(scope | {"asgi": {"version": "3.0"}}, receive, send)  # type: ignore[arg-type]
    return next(message["status"] for message in sent if message["type"] == "http.response.start"), taken


def session_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies["tiltyard"].value


cookie_of = sync_to_async(session_of)


@pytest.mark.parametrize("path", ["/login/", "/p/mill/datasets/new/", "/api/v1/projects/mill/datasets", "/nowhere/"])
@pytest.mark.parametrize("cookie", ["", "x", "a" * 32])
async def test_a_made_up_cookie_spools_nothing(path: str, cookie: str, project: Any) -> None:
    """Any cookie of the right name let anybody spool 2 GiB on any address, /login/ among them."""
    status, taken = await stream(path.replace("mill", project.slug), cookie=cookie)
    assert status == 413 and taken <= SMALL + CHUNK


async def test_an_editor_may_send_files_where_files_are_taken(project: Any, bob: User) -> None:
    status, taken = await stream(f"/p/{project.slug}/datasets/new/", cookie=await cookie_of(bob), size=4_000_000)
    assert taken >= 4_000_000 and status == 403  # read whole; the form had no CSRF token


async def test_an_editor_sends_no_more_than_the_limit(project: Any, bob: User) -> None:
    status, taken = await stream(f"/p/{project.slug}/datasets/new/", cookie=await cookie_of(bob))
    assert status == 413 and taken <= LARGE + 64 * 1024 + CHUNK


@pytest.mark.parametrize("path", ["/login/", "/password/", "/p/mill/runs/new/", "/api/v1/projects/mill/runs"])
async def test_an_editor_sends_little_where_no_files_are_taken(path: str, project: Any, bob: User) -> None:
    status, taken = await stream(path.replace("mill", project.slug), cookie=await cookie_of(bob))
    assert status == 413 and taken <= SMALL + CHUNK


async def test_only_forms_with_files_are_large(project: Any, bob: User) -> None:
    path = f"/p/{project.slug}/datasets/new/"
    status, taken = await stream(path, cookie=await cookie_of(bob), kind=b"application/json")
    assert status == 413 and taken <= SMALL + CHUNK


async def test_viewers_strangers_and_ended_sessions_send_little(
    project: Any, rita: User, charlie: User, bob: User
) -> None:
    ended = await cookie_of(bob)
    await Session.objects.all().adelete()
    for cookie in (ended, await cookie_of(rita), await cookie_of(charlie)):
        status, taken = await stream(f"/p/{project.slug}/datasets/new/", cookie=cookie)
        assert status == 413 and taken <= SMALL + CHUNK
    closed = await cookie_of(bob)
    await User.objects.filter(pk=bob.pk).aupdate(is_active=False)
    assert (await stream(f"/p/{project.slug}/datasets/new/", cookie=closed))[0] == 413


API = "/api/v1/projects/{}/datasets", "/api/v1/projects/{}/runs/import"
make_token = sync_to_async(lambda **fields: token_create(**{"name": "laptop", "role": "editor", **fields})[1])


@pytest.mark.parametrize("path", API)
async def test_a_script_may_send_files_with_its_token(path: str, project: Any, bob: User) -> None:
    """Files above 1 MB were refused to every script: only sessions were looked for."""
    text = await make_token(user=bob)
    for header in (f"Bearer {text}", f"bearer {text}"):
        status, taken = await stream(path.format(project.slug), token=header, size=4_000_000)
        assert taken >= 4_000_000 and status == 422  # read whole; it held no end of a form
    assert (await stream(path.format(project.slug), token=f"Bearer {text}"))[1] <= LARGE + 64 * 1024 + CHUNK
    status, taken = await stream("/login/", token=f"Bearer {text}")
    assert status == 413 and taken <= SMALL + CHUNK


@pytest.mark.parametrize("path", API)
async def test_a_token_that_may_not_write_here_sends_little(
    path: str, project: Any, team: Any, bob: User, rita: User, charlie: User
) -> None:
    other = await Project.objects.acreate(team=team, name="Melee", slug="melee")
    gone = await make_token(user=bob, name="gone")
    await ApiToken.objects.filter(name="gone").aupdate(revoked_at=timezone.now())
    texts = [
        gone,
        await make_token(user=rita),
        await make_token(user=charlie),
        await make_token(user=bob, role="viewer"),
        await make_token(user=bob, name="melee", project=other),
        "tiltyard_made-up",
        "",
    ]
    for text in texts:
        status, taken = await stream(path.format(project.slug), token=f"Bearer {text}")
        assert status == 413 and taken <= SMALL + CHUNK, text
    basic = await stream(path.format(project.slug), token=f"Basic {await make_token(user=bob, name='basic')}")
    assert basic[0] == 413


def test_every_upload_route_exists_below_a_project() -> None:
    """A name that no address has would let no person upload, in silence."""
    names: dict[str, str] = {}

    def walk(patterns: Any, before: str = "") -> None:
        for item in patterns:
            if hasattr(item, "url_patterns"):
                walk(item.url_patterns, before + str(item.pattern))
            elif item.name:
                names[item.name] = before + str(item.pattern)

    walk(get_resolver().url_patterns)
    assert all("<slug:slug>" in names[name] or "{slug:slug}" in names[name] for name in UPLOAD_ROUTES), names
