"""A model pushed to a hub that really takes the files: whole, by parts, refused, broken off, and tried again."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.utils import timezone

from tests.working import done
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.registry import sending as hub_module
from webapp.runs.registry.models import Checkpoint, ModelKind, ModelPush, RegisteredModel
from webapp.runs.registry.sending import push_order

pytestmark = pytest.mark.django_db
TOKEN = "hub-secret"
WEIGHTS = bytes(range(256)) * 12_000  # 3 MB
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "optimizer.pt": b"pickle", "manifest.json": b"{}"}


class _Hub(BaseHTTPRequestHandler):
    """What a hub answers, as far as a push needs it. What came in lies in the server's own dictionaries."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.path, self.headers.get("Authorization")))
        if self.path in server.answers:
            return self._answer(*server.answers[self.path])
        elsewhere = self.headers["Host"].startswith("127.0.0.2:")
        if not elsewhere and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid token"})
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path == "/api/models/team/caller/preupload/main":
            large = [
                {"path": file["path"], "uploadMode": "lfs" if file["size"] > 1000 else "regular"}
                for file in json.loads(body)["files"]
            ]
            return self._answer(200, {"files": large})
        if self.path == "/team/caller.git/info/lfs/objects/batch":
            return self._answer(200, {"objects": [self._object(item) for item in json.loads(body)["objects"]]})
        if self.path.startswith("/parts/"):
            server.store[self.path.removeprefix("/parts/")] = b"".join(
                server.parts[int(part["etag"])] for part in json.loads(body)["parts"]
            )
            return self._answer(200, {})
        if self.path == "/verify":
            item = json.loads(body)
            return self._answer(200 if len(server.store[item["oid"]]) == item["size"] else 422, {})
        if self.path == "/api/models/team/caller/commit/main":
            server.commits.append([json.loads(line) for line in body.splitlines()])
            return self._answer(200, {"commitOid": "c0ffee", "commitUrl": f"{server.url}/team/caller/commit/c0ffee"})
        return self._answer(404, {"error": "no such address"})

    def do_PUT(self) -> None:
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Authorization")))
        if self.path in server.answers:
            self.close_connection = True
            return self._answer(*server.answers[self.path])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/store/"):
            server.store[self.path.removeprefix("/store/")] = body
            return self._answer(200, {})
        number = int(self.path.removeprefix("/part/"))
        server.parts[number] = body
        return self._answer(200, {}, etag=str(number))

    def _create(self, body: dict[str, Any]) -> None:
        server: Any = self.server
        name = f"{body['organization']}/{body['name']}"
        status = 409 if name in server.repositories else 200
        server.repositories.setdefault(name, body["private"])
        self._answer(status, {"url": f"{server.url}/{name}"})

    def _object(self, item: dict[str, Any]) -> dict[str, Any]:
        server: Any = self.server
        if item["oid"] in server.store:
            return dict(item)
        verify = {"href": f"{server.verify}/verify"}
        if not server.chunk:
            return item | {"actions": {"upload": {"href": f"{server.url}/store/{item['oid']}"}, "verify": verify}}
        count = -(-item["size"] // server.chunk)
        header = {str(number): f"{server.url}/part/{number}" for number in range(1, count + 1)}
        upload = {"href": f"{server.url}/parts/{item['oid']}", "header": header | {"chunk_size": str(server.chunk)}}
        return item | {"actions": {"upload": upload, "verify": verify}}

    def _answer(self, status: int, body: dict[str, Any], etag: str = "") -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub(settings: Any) -> Iterator[Any]:
    """A hub on this machine that the outbound policy allows, and whose token the operator has set."""
    server: Any = ThreadingHTTPServer(("0.0.0.0", 0), _Hub)
    server.url = server.verify = f"http://127.0.0.1:{server.server_port}"
    server.asked, server.answers, server.repositories = [], {}, {}
    server.store, server.parts, server.commits, server.chunk = {}, {}, [], 0
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    settings.HUB_URL, settings.HUB_TOKEN = server.url, TOKEN
    settings.OUTBOUND_ALLOW = [f"{host}:{server.server_port}" for host in ("127.0.0.1", "127.0.0.2")]
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def model(project: Project, make_run: Any) -> RegisteredModel:
    """A finished model, with what a trainer leaves next to it."""
    checkpoint = Checkpoint.objects.create(
        project=project, run=make_run(), attempt=1, step=9, path="1/model", bytes=1, final=True, seq=1,
        created_at=timezone.now(),
    )  # fmt: skip
    checkpoint.folder.mkdir(parents=True)
    for name, content in FILES.items():
        (checkpoint.folder / name).write_bytes(content)
    return RegisteredModel.objects.create(project=project, name="caller", kind=ModelKind.RUN, checkpoint=checkpoint)


def _order(model: RegisteredModel, user: User, **over: Any) -> ModelPush:
    values = {"repository": "team/caller", "private": True, "confirmed": True, "readme": "# caller\n"}
    return push_order(model=model, user=user, **(values | over))


def _committed(hub: Any) -> dict[str, bytes]:
    """What the newest commit put into the repository."""
    found = {}
    for line in hub.commits[-1][1:]:
        value = line["value"]
        if line["key"] == "lfsFile":
            found[value["path"]] = hub.store[value["oid"]]
            assert hashlib.sha256(found[value["path"]]).hexdigest() == value["oid"]
        else:
            found[value["path"]] = base64.b64decode(value["content"])
    return found


EXPECTED = {"README.md": b"# caller\n", "config.json": b"{}", "model.safetensors": WEIGHTS}


@pytest.mark.parametrize("chunk", [0, 1_000_000], ids=["whole", "by parts"])
def test_the_hub_has_the_files_in_one_commit(hub: Any, model: RegisteredModel, bob: User, chunk: int) -> None:
    hub.chunk = chunk
    push = done(_order(model, bob))
    assert (push.state, push.commit, push.url) == ("done", "c0ffee", f"{hub.url}/team/caller/commit/c0ffee")
    assert _committed(hub) == EXPECTED and len(hub.commits) == 1
    assert hub.repositories == {"team/caller": True}, "private unless asked otherwise"
    row = AuditEntry.objects.get(action="model_pushed")
    assert (row.username, row.subject) == ("bob", "caller → team/caller")
    assert {path for path, token in hub.asked if token is None} == {
        path for path, _token in hub.asked if path.startswith(("/store/", "/part/"))
    }, "the store is not shown the hub's token"


def test_another_host_that_the_hub_names_is_not_shown_the_token(hub: Any, model: RegisteredModel, bob: User) -> None:
    hub.verify = hub.url.replace("127.0.0.1", "127.0.0.2")
    assert done(_order(model, bob)).state == "done"
    assert [token for path, token in hub.asked if path == "/verify"] == [None]


def test_a_second_push_goes_into_the_same_repository_and_sends_only_what_changed(
    hub: Any, model: RegisteredModel, bob: User
) -> None:
    done(_order(model, bob))
    hub.asked.clear()
    assert done(_order(model, bob, readme="# better\n")).state == "done"
    assert _committed(hub) == EXPECTED | {"README.md": b"# better\n"}
    assert not [path for path, _token in hub.asked if path.startswith("/store/")]
    (model.checkpoint.folder / "model.safetensors").write_bytes(b"small")  # type: ignore[union-attr]
    hub.asked.clear()
    assert done(_order(model, bob)).state == "done" and _committed(hub) == EXPECTED | {"model.safetensors": b"small"}
    assert [path for path, _token in hub.asked if "/lfs/" in path] == [], "no file is for the store"


def test_a_repository_that_others_made_is_left_alone(hub: Any, model: RegisteredModel, bob: User) -> None:
    hub.repositories["team/caller"] = False
    push = done(_order(model, bob))
    assert (push.state, push.error["code"]) == ("failed", "hub_taken") and hub.commits == []
    assert done(_order(model, bob)).error["code"] == "hub_taken", "asking twice makes it not ours"


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        ("/api/repos/create", 401, "hub_refused"),
        ("/api/repos/create", 403, "hub_refused"),
        ("/api/models/team/caller/preupload/main", 500, "hub_away"),
        ("/team/caller.git/info/lfs/objects/batch", 413, "hub_full"),
        ("/api/models/team/caller/commit/main", 402, "hub_full"),
        ("/api/models/team/caller/commit/main", 429, "hub_away"),
        ("/api/models/team/caller/commit/main", 422, "hub_answer"),
    ],
)
def test_a_refusal_is_typed_and_explained(
    hub: Any, model: RegisteredModel, bob: User, address: str, status: int, code: str
) -> None:
    hub.answers[address] = (status, {"error": "because of this"})
    push = done(_order(model, bob))
    assert (push.state, push.error["code"]) == ("failed", code)
    assert push.error["message"] == f"{status} because of this" and TOKEN not in json.dumps(push.error)
    hub.answers.clear()
    assert done(_order(model, bob)).state == "done", "it can be tried again"


def test_a_hub_that_is_away_or_no_hub(hub: Any, model: RegisteredModel, bob: User, settings: Any) -> None:
    for address, body in (
        ("/api/models/team/caller/preupload/main", {"files": []}),
        ("/team/caller.git/info/lfs/objects/batch", {"objects": []}),
        ("/api/models/team/caller/commit/main", {}),
    ):
        hub.answers = {address: (200, body)}
        assert done(_order(model, bob)).error["code"] == "hub_answer", address
    settings.HUB_URL, settings.OUTBOUND_ALLOW = "http://127.0.0.1:9", ["127.0.0.1:9"]
    assert done(_order(model, bob)).error["code"] == "hub_away"
    settings.HUB_URL, settings.OUTBOUND_ALLOW = hub.url, []
    hub.asked.clear()
    assert done(_order(model, bob)).error["code"] == "hub_away" and hub.asked == [], "the policy holds here, too"


def test_a_break_while_weights_are_sent_can_be_tried_again(hub: Any, model: RegisteredModel, bob: User) -> None:
    address = f"/store/{hashlib.sha256(WEIGHTS).hexdigest()}"
    hub.answers[address] = (503, {"error": "slow down"})
    push = done(_order(model, bob))
    assert (push.state, push.error["code"]) == ("failed", "hub_away") and hub.commits == []
    hub.answers.clear()
    assert done(_order(model, bob)).state == "done" and _committed(hub) == EXPECTED


def test_progress_is_reported_while_a_file_is_on_its_way(
    hub: Any, model: RegisteredModel, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.common.outbound.TICK_S", 0.001)
    monkeypatch.setattr("webapp.common.work.PROGRESS_EVERY_S", 0.0)
    monkeypatch.setattr(hub_module, "PIECE", 1 << 14)
    progress: list[int] = []
    send = hub_module.Hub.push

    def listened(self: Any, files: Any, summary: str, on_sent: Any) -> Any:
        return send(self, files, summary, lambda sent: progress.append(sent) or on_sent(sent))

    monkeypatch.setattr(hub_module.Hub, "push", listened)
    assert done(_order(model, bob)).state == "done"
    assert progress == sorted(progress) and progress[-1] == len(WEIGHTS)
    assert any(0 < sent < len(WEIGHTS) for sent in progress)


def _post(client: Any, model: RegisteredModel, **form: str) -> Any:
    return client.post(f"/p/joust/models/{model.pk}/push/", form)


def test_the_page_asks_for_a_name_and_a_yes(hub: Any, model: RegisteredModel, client_for: Any, bob: User) -> None:
    client = client_for(bob)
    for form, sentence in (
        ({"repository": "caller", "confirm": "on"}, "Write the name as owner/name"),
        ({"repository": "team/../x", "confirm": "on"}, "Write the name as owner/name"),
        ({"repository": "team/caller.git", "confirm": "on"}, "Write the name as owner/name"),
        ({"repository": "team/caller"}, "Confirm that these weights may leave this server."),
    ):
        answer = _post(client, model, **form)
        assert answer.status_code == 422 and sentence in answer.content.decode()
    assert not ModelPush.objects.exists()
    assert _post(client, model, repository="team/caller", confirm="on").status_code == 302
    push = ModelPush.objects.get()
    assert not push.private and push.readme.startswith("---\nlibrary_name: transformers")
    again = _post(client, model, repository="team/other", confirm="on")
    assert again.status_code == 422 and "It is being pushed already." in again.content.decode()
    page = client.get(f"/p/joust/models/{model.pk}/").content.decode()
    assert 'hx-trigger="live-tick from:document"' in page and "/push/" not in page
    done(push)
    page = client.get(f"/p/joust/models/{model.pk}/").content.decode()
    assert f'href="{hub.url}/team/caller/commit/c0ffee"' in page and "live-tick" not in page


def test_a_failure_is_shown_on_the_page_with_a_way_on(
    hub: Any, model: RegisteredModel, client_for: Any, bob: User, rita: User
) -> None:
    hub.answers["/api/repos/create"] = (401, {"error": "<b>Invalid token</b>"})
    done(_order(model, bob))
    page = client_for(bob).get(f"/p/joust/models/{model.pk}/").content.decode()
    assert "The hub refuses the server&#x27;s token." in page and "&lt;b&gt;Invalid token" in page
    assert re.search(r'name="repository"\s+value="team/caller"', page) and page.count("/push/") == 2
    assert "/push/" not in client_for(rita).get(f"/p/joust/models/{model.pk}/").content.decode()


def test_without_a_token_it_is_off_and_says_how_to_turn_it_on(
    model: RegisteredModel, client_for: Any, bob: User, settings: Any
) -> None:
    settings.HUB_TOKEN = ""
    client = client_for(bob)
    page = client.get(f"/p/joust/models/{model.pk}/").content.decode()
    assert "TILTYARD_HUB_TOKEN" in page and 'name="repository"' not in page
    body = json.dumps({"repository": "team/caller", "confirm": True})
    answer = client.post(f"/api/v1/models/{model.pk}/pushes", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict") and not ModelPush.objects.exists()


def test_over_the_api(hub: Any, model: RegisteredModel, client_for: Any, bob: User) -> None:
    client, address = client_for(bob), f"/api/v1/models/{model.pk}/pushes"
    made = client.post(
        address, json.dumps({"repository": "team/caller", "confirm": True}), content_type="application/json"
    )
    assert (made.status_code, made.json()["state"], made.json()["private"]) == (202, "waiting", True)
    done(ModelPush.objects.get())
    found = client.get(address).json()["items"]
    assert [(item["state"], item["commit"]) for item in found] == [("done", "c0ffee")]
    refused = client.post(address, json.dumps({"repository": "team/caller"}), content_type="application/json")
    assert (refused.status_code, refused.json()["detail"][0]["path"]) == (422, "confirm")


@pytest.mark.parametrize(
    "form", ["Bearer {}", "{}", "x-%68ub%2Dsecret%2Dof-t%68e-site", "hub\\u002dsecret-of-the-site"]
)
def test_a_token_that_the_hub_repeats_is_kept_nowhere(
    hub: Any, model: RegisteredModel, bob: User, client_for: Any, settings: Any, form: str
) -> None:
    """The operator's token was in the error of a push, which the project reads."""
    settings.HUB_TOKEN = "hub-secret-of-the-site"
    secret = form.format(settings.HUB_TOKEN)
    hub.answers["/api/repos/create"] = (403, {"error": f"refused {secret}"})
    push = done(_order(model, bob))
    assert push.error["message"].startswith("403 refused ") and push.error["message"].endswith("***")
    page = client_for(bob).get(f"/p/joust/models/{model.pk}/").content.decode()
    assert "of-the-site" not in page + json.dumps(push.error) and "***" in page


def test_a_commit_whose_address_has_the_token_is_kept_without_it(
    hub: Any, model: RegisteredModel, bob: User, settings: Any
) -> None:
    settings.HUB_TOKEN = "hub-secret"
    done(_order(model, bob))
    url = f"{hub.url}/team/caller?token={TOKEN}-not&auth={TOKEN}"
    hub.answers["/api/models/team/caller/commit/main"] = (200, {"commitOid": "c0ffee", "commitUrl": url})
    push = done(_order(model, bob, readme="# other\n"))
    assert push.state == "done" and TOKEN not in push.url


@pytest.mark.parametrize(
    "item",
    [
        {"error": {"code": "many", "message": "no"}},
        {"error": {"code": 1e308, "message": "no"}},
        {"error": {"code": -5, "message": "no"}},
        {"actions": {"upload": {"href": "/store/x", "header": {"chunk_size": "many", "1": "/part/1"}}}},
        {"actions": {"upload": {"href": "/store/x", "header": {"chunk_size": "9" * 5000, "1": "/part/1"}}}},
        {"actions": {"upload": {"href": "/store/x", "header": {"chunk_size": "-1", "1": "/part/1"}}}},
        {"actions": {"upload": {"href": "/store/x", "header": {"chunk_size": "1.5", "1": "/part/1"}}}},
    ],
)
def test_numbers_of_a_hub_that_are_none_end_the_push_in_words(
    hub: Any, model: RegisteredModel, bob: User, item: dict[str, Any]
) -> None:
    named = {"oid": hashlib.sha256(WEIGHTS).hexdigest(), "size": len(WEIGHTS)} | item
    hub.answers["/team/caller.git/info/lfs/objects/batch"] = (200, {"objects": [named]})
    assert done(_order(model, bob)).error["code"] == "hub_answer"
