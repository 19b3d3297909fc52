"""Published files: whole or not there, verified, evicted only where unused, on S3 and in a folder."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.s3 import BUCKET, s3_server
from training.errors import FilesAway, FilesMissing, FilesRefused, FilesTorn, StorageFull
from webapp.common import objects

SITE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=["s3", "folder"])
def store(request: Any, s3: str, tmp_path: Path, settings: Any) -> str:
    """A store of its own for the test: under a prefix of the bucket, or in a folder."""
    settings.FILES = f"s3://{BUCKET}/{uuid.uuid4()}" if request.param == "s3" else str(tmp_path / "store")
    settings.FILES_ACCESS = {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "region": "us-east-1",
        "endpoint": s3,
    }
    return str(settings.FILES)


@pytest.fixture
def host(tmp_path: Path, settings: Any) -> Callable[[str], Path]:
    """``host("web")``: from now on this process works with that host's data folder; ``web`` has the site's own."""

    def go(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        if name == "web":
            (folder / "identity").write_text(str(SITE))
        settings.DATA_DIR = folder
        return folder

    return go


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.usefixtures("store")
def test_what_one_host_publishes_another_fetches(host: Callable[[str], Path]) -> None:
    model = write(host("one") / "runs/1/model", weights="w" * 70_000, deep__config_json="{}", empty="")
    rows = write(host("one") / "datasets/1", rows_jsonl="{}\n") / "rows.jsonl"
    assert objects.publish(model) and objects.publish(rows)
    assert not objects.publish(model), "sent once"
    there = host("two")
    assert objects.is_published(there / "runs/1/model") and not objects.is_published(there / "runs/1")
    assert contents(objects.fetch(there / "runs/1/model")) == contents(model)
    assert objects.fetch(there / "datasets/1/rows.jsonl").read_text() == "{}\n"
    assert sorted(p.name for p in (there / "runs/1").iterdir()) == [".model.published", "model"]
    assert objects.published_below(there / "runs") == [there / "runs/1/model"]
    with pytest.raises(FilesMissing, match="datasets/2"):
        objects.fetch(there / "datasets/2/rows.jsonl")


@pytest.mark.usefixtures("store")
def test_without_its_manifest_nothing_is_there(host: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that dies while it publishes leaves nothing that another would take for whole."""
    model = write(host("one") / "runs/1/model", a="a", b="b")
    put, sent = objects.obstore.put, []

    def die_at_the_manifest(store: Any, name: str, *args: Any, **options: Any) -> Any:
        if name.endswith(objects.MANIFEST):
            raise KeyboardInterrupt
        sent.append(name)
        return put(store, name, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(objects.obstore, "put", die_at_the_manifest)
        objects.publish(model)
    assert sorted(sent) == ["runs/1/model/a", "runs/1/model/b"]
    with pytest.raises(FilesMissing):
        objects.fetch(host("two") / "runs/1/model")
    host("one")
    assert objects.publish(model)
    assert contents(objects.fetch(host("two") / "runs/1/model")) == {"a": "a", "b": "b"}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("damage", ["changed", "gone", "manifest", "escape"])
def test_what_is_not_as_published_is_refused_and_leaves_nothing(damage: str, host: Callable[[str], Path]) -> None:
    model = write(host("one") / "runs/1/model", a="aaaa", b="b")
    objects.publish(model)
    store, key = objects._ours(), f"runs/1/model{objects.MANIFEST}"
    manifest = json.loads(bytes(objects.obstore.get(store, key).bytes()))
    if damage == "changed":
        objects.obstore.put(store, "runs/1/model/a", b"aaab")
    elif damage == "gone":
        objects.obstore.delete(store, "runs/1/model/a")
    elif damage == "manifest":
        objects.obstore.put(store, key, b"{}")
    else:
        manifest["files"][0]["path"] = "../a"
        objects.obstore.put(store, key, json.dumps(manifest).encode())
    there = host("two")
    with pytest.raises(FilesTorn):
        objects.fetch(there / "runs/1/model")
    assert not (there / "runs/1/model").exists() and not list(there.glob("runs/**/*.fetching"))


@pytest.mark.usefixtures("store")
def test_another_content_replaces_the_one_before(host: Callable[[str], Path]) -> None:
    model = write(host("one") / "runs/1/model", a="old", b="b")
    objects.publish(model)
    (model / "b").unlink()
    write(model, a="new")
    assert objects.publish(model)
    assert contents(objects.fetch(host("two") / "runs/1/model")) == {"a": "new"}


@pytest.mark.usefixtures("store")
def test_a_replacement_that_was_cut_off_is_not_taken_for_the_old(
    host: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write(host("one") / "runs/1/model", a="old")
    objects.publish(model)
    write(model, a="new")

    def die(*_args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(objects, "_send", die)
        objects.publish(model)
    with pytest.raises(FilesMissing):
        objects.fetch(host("two") / "runs/1/model")


@pytest.mark.usefixtures("store")
def test_deleting_takes_everything_below(host: Callable[[str], Path]) -> None:
    here = host("one")
    objects.publish(write(here / "runs/1/1/model", a="a"))
    objects.publish(write(here / "runs/10/1/model", a="a"))
    objects.ship(write(here / "runs/1/1", journal_jsonl="line\n") / "journal.jsonl", 0)
    objects.unpublish(here / "runs/1")
    assert objects.published_below(here / "runs") == [here / "runs/10/1/model"]
    assert [str(row["path"]) for row in objects._rows("runs/1")] == []
    objects.unpublish(here / "runs/1")


@pytest.mark.usefixtures("store")
def test_a_journal_is_collected_from_stretches(host: Callable[[str], Path]) -> None:
    journal = write(host("one") / "runs/1/1", journal_jsonl="1\n2\n") / "journal.jsonl"
    at = objects.ship(journal, 0)
    with journal.open("a") as file:
        file.write("3\n")
    assert at == 4 and objects.ship(journal, at) == 6 and objects.ship(journal, 6) == 6
    copy = host("two") / "runs/1/1/journal.jsonl"
    assert objects.collect(copy) == 6 and copy.read_text() == "1\n2\n3\n"
    assert objects.collect(copy) == 6 and copy.read_text() == "1\n2\n3\n"
    copy.write_text("1\n2")  # a host that was killed as it wrote
    assert objects.collect(copy) == 6 and copy.read_text() == "1\n2\n3\n"
    assert objects.collect(host("two") / "runs/2/1/journal.jsonl") == 0


@pytest.mark.usefixtures("store")
def test_stretches_of_an_ended_attempt_are_joined(host: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PIECE_BYTES", 10)
    text = "".join(f"{n}\n" for n in range(100))
    journal, at = write(host("one") / "runs/1/1", journal_jsonl=text) / "journal.jsonl", 0
    while (sent := objects.ship(journal, at)) != at:
        at = sent
    half = host("three") / "runs/1/1/journal.jsonl"
    assert objects.collect(half) == len(text) and len(objects._rows("runs/1/1/journal.jsonl.parts")) == 29
    half.write_text(text[:33])
    host("one")
    objects.join_parts(journal)
    assert len(objects._rows("runs/1/1/journal.jsonl.parts")) == 1
    objects.join_parts(journal)
    host("three")
    assert objects.collect(half) == len(text) and half.read_text() == text
    copy = host("two") / "runs/1/1/journal.jsonl"
    assert objects.collect(copy) == len(text) and copy.read_text() == text


@pytest.mark.usefixtures("store")
def test_a_folder_is_filled_with_what_it_lacks(host: Callable[[str], Path]) -> None:
    here = write(host("one") / "runs/1/1", a="a", big="x" * 9, deep__c="c")
    objects.publish(here, files=[here / "a", here / "deep/c"], key="runs/1/1.files")
    there = write(host("two") / "runs/1/1", a="other", own="own")
    assert objects.fill(there, "runs/1/1.files") and not objects.fill(there, "runs/2/1.files")
    assert contents(there) == {"a": "a", "deep/c": "c", "own": "own"}


@pytest.mark.usefixtures("store")
def test_two_sites_on_one_place_are_noticed(host: Callable[[str], Path]) -> None:
    host("one")
    assert objects.problem(SITE, claim=False) == "files_unclaimed"
    assert objects.problem(SITE, claim=True) == "" == objects.problem_seen()
    assert objects.problem(SITE, claim=False) == "" and objects.problem(SITE, claim=True) == ""
    assert objects.problem(OTHER, claim=True) == "other_site" == objects.problem_seen()
    assert objects.problem(SITE, claim=False) == ""


def _fetch_there(folder: str, files: str, access: dict[str, str], done: Any) -> None:
    import django

    django.setup()
    from django.conf import settings

    settings.DATA_DIR, settings.FILES, settings.FILES_ACCESS = Path(folder), files, access
    objects.fetch(Path(folder) / "runs/1/model")
    done.put(len(contents(Path(folder) / "runs/1/model")))


def test_two_processes_fetch_one_object(store: str, host: Callable[[str], Path], settings: Any) -> None:
    objects.publish(write(host("one") / "runs/1/model", **{f"f{n}": "x" * 1000 for n in range(200)}))
    there, context = host("two"), multiprocessing.get_context("spawn")
    done = context.Queue()
    arguments = (str(there), store, settings.FILES_ACCESS, done)
    processes = [context.Process(target=_fetch_there, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    assert [done.get(timeout=60), done.get(timeout=60)] == [200, 200]
    for process in processes:
        process.join(timeout=30)
    assert not list(there.glob("runs/**/*.fetching"))


# --- The cache --------------------------------------------------------------------------------------------------------
@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A disk with so many free bytes, above a reserve of 1,000; each object that is evicted frees 100."""
    found = SimpleNamespace(free=10_000, gone=[])
    remove = objects._remove

    def freeing(path: Path) -> None:
        if path.name.endswith(".evicted") and path.exists():
            found.free += 100
            found.gone.append(path.name.removesuffix(".evicted"))
        remove(path)

    monkeypatch.setenv("TILTYARD_DISK_RESERVE_MB", "0")
    usage = lambda _path: SimpleNamespace(free=found.free - 1000, total=10**6)  # noqa: E731
    monkeypatch.setattr(objects.shutil, "disk_usage", usage)
    monkeypatch.setattr(objects, "_remove", freeing)
    return found


@pytest.mark.usefixtures("store")
def test_the_oldest_unused_objects_go_when_the_disk_fills(host: Callable[[str], Path], disk: SimpleNamespace) -> None:
    here = host("one")
    for name in ("a", "b", "c", "d"):
        objects.publish(write(here / "runs" / name, weights="w" * 100))
    there = host("two")
    for age, name in enumerate(("b", "a", "c")):
        objects.fetch(there / "runs" / name)
        os.utime(there / f"runs/.{name}.published", (1000 + age, 1000 + age))
    own = write(there / "runs/own", weights="not published")
    disk.free = 1000 + 50
    with objects.in_use():
        objects.fetch(there / "runs/b")  # in use, and used last
        os.utime(there / "runs/.b.published", (1, 1))
        objects.fetch(there / "runs/d")
        assert disk.gone == ["a"] and own.is_dir() and (there / "runs/b").is_dir()
        disk.free = 1000
        objects.fetch(there / "runs/a")
        assert disk.gone == ["a", "c"]
        disk.free = 900
        with pytest.raises(StorageFull, match="runs/c"):
            objects.fetch(there / "runs/c")
    assert not (there / "runs/c").exists() and own.is_dir()
    disk.free = 1000
    objects.fetch(there / "runs/c")
    assert "b" in disk.gone, "free again after the block"


@pytest.mark.usefixtures("store")
def test_the_folder_of_the_site_evicts_nothing(host: Callable[[str], Path], disk: SimpleNamespace) -> None:
    for name in ("a", "b"):
        objects.publish(write(host("one") / "runs" / name, weights="w" * 100))
    here = host("web")
    objects.fetch(here / "runs/a")
    assert not list(here.glob("runs/.*"))
    objects.mark(here / "runs/a")  # of the time when this folder was a cache
    disk.free = 1000
    with pytest.raises(StorageFull):
        objects.fetch(here / "runs/b")
    assert disk.gone == [] and (here / "runs/a").is_dir()


@pytest.mark.usefixtures("store")
def test_what_is_used_again_is_as_young_as_what_is_new(host: Callable[[str], Path]) -> None:
    objects.publish(write(host("one") / "runs/a", weights="w"))
    mark = host("two") / "runs/.a.published"
    objects.fetch(host("two") / "runs/a")
    os.utime(mark, (1, 1))
    objects.fetch(host("two") / "runs/a")
    assert mark.stat().st_mtime > 1_000_000_000


@pytest.mark.usefixtures("store")
def test_a_store_that_works_takes_files(host: Callable[[str], Path]) -> None:
    host("one")
    assert objects.takes_files() and objects.takes_files()
    assert objects._rows("") == [], "the file that was tried is deleted"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("fault", ["late", "gone", "other", "refused", "died", "kept"])
def test_a_store_that_fails_within_the_trial_keeps_no_file(
    fault: str, host: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses a file that it took; what it gives back is gone, another, refused, or never comes; or it does not
    delete."""
    host("one")
    put = objects.obstore.put
    errors = {"gone": FileNotFoundError(), "refused": objects.PermissionDeniedError("no"), "died": KeyboardInterrupt()}

    def read_back(_store: Any, _name: str) -> Any:
        if fault in errors:
            raise errors[fault]
        return SimpleNamespace(bytes=lambda: b"other")

    def refuse(_store: Any, _name: str) -> None:
        raise objects.PermissionDeniedError("no")

    def put_and_refuse(store: Any, name: str, data: bytes) -> None:
        put(store, name, data)
        raise objects.PermissionDeniedError("no")

    with monkeypatch.context() as patch:
        if fault == "kept":
            patch.setattr(objects.obstore, "delete", refuse)
        elif fault == "late":
            patch.setattr(objects.obstore, "put", put_and_refuse)
        else:
            patch.setattr(objects.obstore, "get", read_back)
        if fault == "died":
            with pytest.raises(KeyboardInterrupt):
                objects.takes_files()
        else:
            assert not objects.takes_files()
    assert [row["path"] for row in objects._rows("")] == ([objects.TRIAL] if fault == "kept" else [])
    assert objects.takes_files() and objects._rows("") == []


# --- Failures ---------------------------------------------------------------------------------------------------------
def test_a_store_that_is_away_is_named(settings: Any, host: Callable[[str], Path], monkeypatch: Any) -> None:
    monkeypatch.setattr(objects, "RETRY_S", 1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings.FILES = f"s3://away-{uuid.uuid4()}"
        settings.FILES_ACCESS = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
        settings.FILES_ACCESS["endpoint"] = f"http://127.0.0.1:{unused.getsockname()[1]}"
        path = write(host("one") / "runs/1", a="a")
        with pytest.raises(FilesAway, match="does not answer"):
            objects.publish(path)
        assert objects.problem(SITE, claim=True) == "files_away"
        assert not objects.takes_files()


@pytest.mark.parametrize(
    ("status", "code", "error", "problem"),
    [
        (403, "AccessDenied", FilesRefused, "files_refused"),
        (507, "InsufficientStorage", objects.FilesFull, "files_away"),
    ],
)
def test_an_answer_that_refuses_is_named(
    status: int, code: str, error: Any, problem: str, settings: Any, host: Callable[[str], Path], monkeypatch: Any
) -> None:
    monkeypatch.setattr(objects, "RETRY_S", 1)
    body = f"<Error><Code>{code}</Code></Error>".encode()
    head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def answer() -> None:
            while not stop.is_set():
                connection, _address = server.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(head + body)

        threading.Thread(target=answer, daemon=True).start()
        settings.FILES = f"s3://refusing-{uuid.uuid4()}"
        settings.FILES_ACCESS = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
        settings.FILES_ACCESS["endpoint"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        path = write(host("one") / "runs/1", a="a")
        with pytest.raises(error):
            objects.publish(path)
        assert objects.problem(SITE, claim=True) == problem
        assert not objects.takes_files()
        stop.set()


def test_one_process_waits_for_the_other_only_so_long(
    store: str, host: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "WAIT_S", 0.5)
    path = host("one") / "runs/1"
    with objects._alone(path):
        pass
    handle = os.open(next((host("one") / "locks").iterdir()), os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(FilesAway, match="for an hour"):
        objects.fetch(path)
    os.close(handle)
