"""A model's files on their way out: as one tar that is streamed, or pushed to a hub as background work."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from training.errors import Boundary, ModelError, TiltyardError
from training.plain import whole
from training.redaction import redact, without
from webapp.common import work
from webapp.common.outbound import Caller, Reply
from webapp.common.work import Claim
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.registry.models import ModelKind, ModelPush, PushState, RegisteredModel

# A model's files as one tar, streamed: nothing is copied first, and no more than a piece is ever in memory.
#
# The last member, ``SHA256SUMS``, has the hash of each file as it was sent: ``sha256sum --check SHA256SUMS`` proves it.

TAR_PIECE = 1 << 20
Content = bytes
SUMS, README = "SHA256SUMS", "README.md"
# What loads a model, with its card and its licence. Never a trainer's own state, which a checkpoint on the way has too:
# optimiser, schedule and random states are pickles, larger than the weights, and of use to resuming alone.
SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model", ".md")
STEMS = ("tokenizer", "license", "notice")
TRAINERS = {"manifest.json", "trainer_state.json"}
PICKLES = (".bin", ".pt", ".pth", ".pkl")


class ModelFile(NamedTuple):
    """One file of a model, as it is now: at ``path``, or where that is ``None``, ``content``."""

    name: str
    path: Path | None
    bytes: int
    content: Content = b""


def with_card(model: RegisteredModel, files: list[ModelFile], text: str) -> list[ModelFile]:
    """The files with the model card as README. One that a model brought along stays; a trainer's own, which says less
    than the card, does not."""
    if model.kind != ModelKind.RUN and any(file.name == README for file in files):
        return files
    content = text.encode()
    others = [file for file in files if file.name != README]
    return sorted([*others, ModelFile(README, None, len(content), content)], key=lambda file: file.name)


def model_files(model: RegisteredModel, part: str = "model") -> list[ModelFile]:
    """The files that leave this server: the whole weights, or with ``part="adapter"`` the LoRA adapter next to them.

    Of either only the files needed to load it are sent.

    Raises ``ValidationError`` where there is nothing here to send.
    """
    folder = model.adapter if part == "adapter" else model.folder
    found: list[ModelFile] = []
    there = folder is not None and folder.is_dir()
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if there else []:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and _is_model_file(entry.name):
            found.append(ModelFile(entry.name, Path(entry.path), status.st_size))
    if not found:
        words = {
            "adapter": _("This model has no adapter: it was not trained with LoRA, or its files are gone."),
            "model": _("The files of this model are not on this server."),
        }
        raise ValidationError(words.get(part, words["model"]), code="conflict")
    return found


def _is_model_file(name: str) -> bool:
    """Whether a file belongs to the model, by its name."""
    low = name.lower()
    return low not in TRAINERS and not low.endswith(PICKLES) and (low.endswith(SUFFIXES) or low.startswith(STEMS))


def tar_bytes(files: list[ModelFile], folder: str) -> int:
    """The length of the tar in bytes."""
    sums = sum(64 + 2 + len(file.name.encode()) + 1 for file in files)
    members = [*((file.name, file.bytes) for file in files), (SUMS, sums)]
    return sum(len(_tar_header(folder, name, size)) + size + -size % 512 for name, size in members) + 2 * 512


async def tar_of(files: list[ModelFile], folder: str) -> AsyncIterator[bytes]:
    """The tar, piece by piece. Raises ``OSError`` where a file has changed under it: the answer then ends too early."""
    pieces = _tar_stream(files, folder)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def _tar_stream(files: list[ModelFile], folder: str) -> Iterator[bytes]:
    sums = ""
    for file in files:
        yield _tar_header(folder, file.name, file.bytes)
        digest, left = hashlib.sha256(), file.bytes
        with io.BytesIO(file.content) if file.path is None else file.path.open("rb") as source:
            while left:
                piece = source.read(min(TAR_PIECE, left))
                if not piece:
                    raise OSError(f"{file.name} became shorter while it was sent")
                digest.update(piece)
                left -= len(piece)
                yield piece
        yield bytes(-file.bytes % 512)
        sums += f"{digest.hexdigest()}  {file.name}\n"
    yield (
        _tar_header(folder, SUMS, len(sums.encode()))
        + sums.encode()
        + bytes(-len(sums.encode()) % 512)
        + bytes(2 * 512)
    )


def _tar_header(folder: str, name: str, size: int) -> bytes:
    member = tarfile.TarInfo(f"{folder}/{name}")
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.PAX_FORMAT)


# A hub of models, as Hugging Face's: a repository is made, large files go to its store, and one commit names them all.
#
# 1. ``POST /api/repos/create`` makes the repository, private unless asked otherwise.
# 2. ``POST …/preupload`` says of each file whether it goes into the commit itself or into the store of large files.
# 3. ``POST ….git/info/lfs/objects/batch`` gives an address for each large file that is not there yet, for the whole of
#    it or for parts; the file is streamed there.
# 4. ``POST …/commit`` puts everything in place at once: a reader sees nothing of it before.
#
# The token goes to the hub's own address alone: a store's addresses carry their own permission.

PIECE, MAX_CHUNK_BYTES = 1 << 20, 1 << 50
SAMPLE_BYTES = 512
ANSWER_LIMIT_S = 60.0
SEND_LEAST_S, SLOWEST_BYTES_PER_S = 300.0, 100_000
LFS = {"Accept": "application/vnd.git-lfs+json", "Content-Type": "application/vnd.git-lfs+json"}
BRANCH = "main"
FULL = {402, 413, 507}
OnSent = Callable[[int], None]


class HubFault(TiltyardError):
    """The hub's answer does not follow the protocol."""

    code, boundary = "hub_answer", Boundary.STORAGE


class HubRefused(HubFault):
    """The hub refuses the token, or what it asks for."""

    code = "hub_refused"


class HubTaken(HubFault):
    """The hub has a repository of this name."""

    code = "hub_taken"


class HubFull(HubFault):
    """The hub has no room for the files."""

    code = "hub_full"


class HubAway(HubFault):
    """The hub was not reached, or broke off: a later try may succeed."""

    code = "hub_away"


class Sent(NamedTuple):
    """A file to send: at ``path``, or where that is ``None``, ``content``. ``sha256`` as hexadecimal digits."""

    name: str
    path: Path | None
    bytes: int
    sha256: str
    content: Content = b""


class Commit(NamedTuple):
    """The commit that the hub made."""

    id: str
    url: str


class Hub:
    """One hub and one repository in it, with the token that may write there."""

    def __init__(self, caller: Caller, url: str, token: str, repository: str) -> None:
        self._caller, self._url, self._repository = caller, url.rstrip("/"), repository
        self._auth = {"Authorization": f"Bearer {token}"}
        self._secrets = (token,)
        self._arrived = 0

    def create(self, *, private: bool, ours: bool) -> None:
        """Make the repository. ``ours``: one that is there already is one that we filled before.

        Raises ``HubTaken`` for any other that is there.
        """
        owner, _slash, name = self._repository.partition("/")
        body = {"type": "model", "organization": owner, "name": name, "private": private}
        reply = self._post(f"{self._url}/api/repos/create", body, taken=True)
        if reply.status == 409 and not ours:
            raise HubTaken(f"{self._repository} is there already.")

    def push(self, files: Sequence[Sent], summary: str, on_sent: OnSent) -> Commit:
        """Send the files and commit them. ``on_sent`` gets the bytes that have arrived so far."""
        large = self._large(files)
        self._send_large([file for file in files if file.name in large], on_sent)
        lines: list[dict[str, Any]] = [{"key": "header", "value": {"summary": summary, "description": ""}}]
        lines += [_commit_line(file, file.name in large) for file in files]
        body = "\n".join(json.dumps(line) for line in lines).encode()
        address = f"{self._url}/api/models/{self._repository}/commit/{BRANCH}"
        reply = self._request(address, body, {"Content-Type": "application/x-ndjson"}, limit_s=SEND_LEAST_S)
        found = _json_object(reply)
        commit, url = (without(str(found.get(name) or ""), self._secrets) for name in ("commitOid", "commitUrl"))
        if not commit:
            raise HubFault("The answer to the commit names no commit.")
        own = urlsplit(urljoin(self._url + "/", url)).netloc == urlsplit(self._url).netloc
        plain = f"{self._url}/{self._repository}/commit/{quote(commit, safe='')}"
        return Commit(commit[:64], url[:500] if url and own else plain)

    def _large(self, files: Sequence[Sent]) -> set[str]:
        """The names of the files that belong in the store of large files."""
        asked = [{"path": file.name, "sample": _base64_sample(file), "size": file.bytes} for file in files]
        address = f"{self._url}/api/models/{self._repository}/preupload/{BRANCH}"
        found = _json_object(self._post(address, {"files": asked})).get("files")
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise HubFault("The answer says nothing of the files.")
        modes = {str(item.get("path")): item.get("uploadMode") for item in found}
        if missing := [file.name for file in files if modes.get(file.name) not in ("lfs", "regular")]:
            raise HubFault(f"The answer says nothing of {missing[0]}.")
        return {name for name, mode in modes.items() if mode == "lfs"}

    def _send_large(self, files: Sequence[Sent], on_sent: OnSent) -> None:
        if not files:
            return
        by_id = {file.sha256: file for file in files}
        body = {
            "operation": "upload",
            "transfers": ["basic", "multipart"],
            "hash_algo": "sha256",
            "objects": [{"oid": file.sha256, "size": file.bytes} for file in by_id.values()],
        }
        address = f"{self._url}/{self._repository}.git/info/lfs/objects/batch"
        found = _json_object(self._post(address, body, LFS)).get("objects")
        named = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        if {str(item.get("oid")) for item in named} != set(by_id):
            raise HubFault("The answer names other files than were asked for.")
        done = 0
        for item in named:
            file, self._arrived = by_id[str(item["oid"])], done
            self._send_one(file, item, lambda: on_sent(self._arrived))
            done += file.bytes
            on_sent(done)

    def _send_one(self, file: Sent, item: dict[str, Any], tick: Callable[[], None]) -> None:
        if isinstance(error := item.get("error"), dict):
            self._refuse(whole(error.get("code"), 999) or 0, str(error.get("message") or ""))
        actions = item.get("actions") or {}
        upload = actions.get("upload")
        if not upload:
            return  # it is there already
        header = {str(name): str(value) for name, value in (upload.get("header") or {}).items()}
        href = urljoin(f"{self._url}/", str(upload.get("href") or ""))
        if chunk := header.pop("chunk_size", ""):
            self._send_parts(file, href, header, whole(chunk, MAX_CHUNK_BYTES) or 0, tick)
        else:
            self._put(file, href, header, 0, file.bytes, tick)
        if verify := actions.get("verify"):
            self._post(urljoin(f"{self._url}/", str(verify["href"])), {"oid": file.sha256, "size": file.bytes}, LFS)

    def _send_parts(
        self, file: Sent, href: str, header: Mapping[str, str], chunk: int, tick: Callable[[], None]
    ) -> None:
        addresses = [header[name] for name in sorted((name for name in header if name.isdigit()), key=int)]
        if chunk < 1 or len(addresses) != -(-file.bytes // chunk):
            raise HubFault("The parts of a large file do not add up.")
        parts = []
        for number, address in enumerate(addresses, 1):
            start = (number - 1) * chunk
            size = min(chunk, file.bytes - start)
            reply = self._put(file, address, {}, start, size, tick)
            parts.append({"partNumber": number, "etag": reply.headers.get("etag", "")})
        self._post(href, {"oid": file.sha256, "parts": parts}, LFS)

    def _put(
        self, file: Sent, href: str, headers: Mapping[str, str], start: int, size: int, tick: Callable[[], None]
    ) -> Reply:
        limit_s = max(SEND_LEAST_S, size / SLOWEST_BYTES_PER_S)
        sized = {**headers, "Content-Length": str(size)}
        content = self._pieces(file, start, size)
        return self._checked(
            lambda: self._caller.send("PUT", href, content=content, headers=sized, limit_s=limit_s, tick=tick)
        )

    async def _pieces(self, file: Sent, start: int, size: int) -> AsyncIterator[bytes]:
        """A part of a file. Raises ``HubFault`` where the file has become shorter than was announced."""
        sent = 0
        with io.BytesIO(file.content) if file.path is None else file.path.open("rb") as source:
            source.seek(start)
            while sent < size:
                piece = await asyncio.to_thread(source.read, min(PIECE, size - sent))
                if not piece:
                    raise HubFault(f"{file.name} changed while it was sent.")
                yield piece
                sent += len(piece)
                self._arrived += len(piece)

    def _post(
        self, address: str, body: dict[str, Any], headers: Mapping[str, str] | None = None, *, taken: bool = False
    ) -> Reply:
        content = json.dumps(body).encode()
        return self._request(address, content, headers or {"Content-Type": "application/json"}, taken=taken)

    def _request(
        self,
        address: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        limit_s: float = ANSWER_LIMIT_S,
        taken: bool = False,
    ) -> Reply:
        own = urlsplit(address)[:2] == urlsplit(self._url)[:2]
        sent = {**headers, **(self._auth if own else {})}
        return self._checked(
            lambda: self._caller.send("POST", address, content=content, headers=sent, limit_s=limit_s), taken=taken
        )

    def _checked(self, ask: Callable[[], Reply], *, taken: bool = False) -> Reply:
        try:
            reply = ask()
        except HubFault:
            raise
        except TiltyardError as exc:
            raise HubAway(exc.message) from exc
        if not (200 <= reply.status < 300 or (taken and reply.status == 409)):
            self._refuse(reply.status, _error_text(reply))
        return reply

    def _refuse(self, status: int, reason: str) -> None:
        """Raise the error of a refusal. The hub's text is shown to the project, without our token, which it may
        repeat."""
        text = f"{status} {redact(reason, self._secrets)}".strip()[:300]
        if status in (401, 403, 404):
            raise HubRefused(text)
        if status in FULL:
            raise HubFull(text)
        if status in (408, 429) or status >= 500:
            raise HubAway(text)
        raise HubFault(text)


def _error_text(reply: Reply) -> str:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("error") or found.get("message") or "") if isinstance(found, dict) else ""


def _json_object(reply: Reply) -> dict[str, Any]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HubFault("The answer is no JSON object.")
    return found


def _commit_line(file: Sent, large: bool) -> dict[str, Any]:
    if large:
        value = {"path": file.name, "algo": "sha256", "oid": file.sha256, "size": file.bytes}
        return {"key": "lfsFile", "value": value}
    content = file.content if file.path is None else file.path.read_bytes()
    return {"key": "file", "value": {"path": file.name, "encoding": "base64", "content": _to_base64(content)}}


def _base64_sample(file: Sent) -> str:
    if file.path is None:
        return _to_base64(file.content[:SAMPLE_BYTES])
    with file.path.open("rb") as source:
        return _to_base64(source.read(SAMPLE_BYTES))


def _to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# https://huggingface.co/docs/hub: an owner and a name, without doubled or final dots and dashes.
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,40}/[A-Za-z0-9][\w.-]{0,94}")


def push_on() -> bool:
    """Whether the operator has given a token that may write to the hub."""
    return bool(settings.HUB_TOKEN and settings.HUB_URL)


def push_order(
    *, model: RegisteredModel, user: User | None, repository: str, private: bool, confirmed: bool, readme: str
) -> ModelPush:
    """Ask for a push. Raises ``ValidationError`` by field, or as a conflict while it is off or another one runs."""
    if not push_on():
        raise ValidationError(_("Pushing is off: the operator has set no TILTYARD_HUB_TOKEN."), code="conflict")
    name = repository.strip()
    if not REPOSITORY.fullmatch(name) or re.search(r"--|\.\.|[.-]$|[.-]/|\.git$", name):
        raise ValidationError({"repository": _("Write the name as owner/name, for example my-team/tool-caller.")})
    if not confirmed:
        raise ValidationError({"confirm": _("Confirm that these weights may leave this server.")})
    sent_files(model, readme)
    push = ModelPush(
        model=model, hub=settings.HUB_URL, repository=name, private=private, readme=readme, created_by=user
    )
    try:
        with transaction.atomic():
            push.save(force_insert=True)
            work.enqueue(push)
            audit(AuditAction.MODEL_PUSHED, model, by=user, subject=f"{model.name} → {name}")
    except IntegrityError as exc:
        raise ValidationError(_("It is being pushed already."), code="conflict") from exc
    return push


def sent_files(model: RegisteredModel, readme: str) -> list[ModelFile]:
    """The files that would be pushed. Raises ``ValidationError`` where the model's files are not here."""
    files = model_files(model)
    if not any(file.name.endswith(".safetensors") for file in files):
        raise ValidationError(_("There are no safetensors weights to push."), code="conflict")
    return with_card(model, files, readme)


def push_run(claim: Claim[ModelPush]) -> None:
    """Send the files of a claimed push; they are read twice, because their hashes are asked for first."""
    push = claim.item
    if not push_on():
        raise ModelError(_("Pushing is off: the operator has set no TILTYARD_HUB_TOKEN."))
    try:
        files = sent_files(push.model, push.readme)
    except ValidationError as exc:  # deleted since
        raise ModelError(" ".join(exc.messages)) from exc
    total = sum(file.bytes for file in files)
    claim.report({"bytes": 0, "total": total}, at_once=True)
    hashed = [_with_sha256(file) for file in files]
    before = ModelPush.objects.filter(
        model__project=push.model.project_id, hub=push.hub, repository=push.repository, made=True
    )
    with Caller() as caller:
        hub = Hub(caller, push.hub, settings.HUB_TOKEN, push.repository)
        hub.create(private=push.private, ours=before.exists())
        claim.keep(made=True)  # a later try, also after this worker was lost, continues in it
        made = hub.push(hashed, f"Upload {push.model.name}", lambda sent: claim.report({"bytes": sent, "total": total}))
    claim.finish(state=PushState.DONE, commit=made.id, url=made.url, error=None)


def push_failed(push: ModelPush, error: TiltyardError) -> dict[str, Any]:
    """The columns of a push that failed."""
    return {"state": PushState.FAILED, "error": error.info.model_dump(mode="json")}


def _with_sha256(file: ModelFile) -> Sent:
    digest = hashlib.sha256(file.content)
    if file.path is not None:
        with file.path.open("rb") as source:
            while piece := source.read(PIECE):
                digest.update(piece)
    return Sent(file.name, file.path, file.bytes, digest.hexdigest(), file.content)
