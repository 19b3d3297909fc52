"""Backup and restore of a living installation into another folder and another database."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.servers import make_child_env
from tests.webapp.ops.comparing import differences, tables_of
from training.journal import JOURNAL_NAME
from webapp.common.storage import attempt_dir
from webapp.ops.backup import END_NAME, FILES_NAME, ArchiveError, Writer, held_here, kept, require_empty_folder, unpack
from webapp.people.teams.models import User
from webapp.runs.models import Attempt, Run

ROOT = Path(__file__).resolve().parents[3]
COPY = f"restored_{os.getpid()}"


# --- The archive ----------------------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of every kind that an archive may hold, and a socket, which it may not."""
    root = tmp_path / "data"
    (root / "runs/a/1").mkdir(parents=True, mode=0o700)
    (root / "runs/a/1/journal.jsonl").write_text("one\n")
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    os.link(root / "secret", root / "the-same")
    (root / "link").symlink_to("runs/a")
    (root / "open").write_text("o")
    (root / "open").chmod(0o666)
    return root


def archived(root: Path, **head: Any) -> bytes:
    stream = io.BytesIO()
    writer = Writer(stream, {"version": "1"} | head)
    (root.parent / "dump").write_bytes(b"dump")
    writer.add(root.parent / "dump", "tiltyard.dump")
    for path in kept(root):
        writer.add(path, f"{FILES_NAME}/{path.relative_to(root).as_posix()}")
    writer.end()
    return stream.getvalue()


def test_what_was_packed_is_unpacked_as_it_was(folder: Path, tmp_path: Path) -> None:
    (target := tmp_path / "target").mkdir()
    assert unpack(io.BytesIO(archived(folder)), target) == {"version": "1"}
    files = target / FILES_NAME
    assert (files / "runs/a/1/journal.jsonl").read_text() == "one\n"
    assert os.readlink(files / "link") == "runs/a"
    assert (files / "secret").stat().st_ino == (files / "the-same").stat().st_ino
    modes = {name: stat.S_IMODE((files / name).stat().st_mode) for name in ("secret", "open", "runs")}
    assert modes == {"secret": 0o600, "open": 0o644, "runs": 0o700}
    assert int((files / "secret").stat().st_mtime) == int((folder / "secret").stat().st_mtime)


def test_a_file_that_grows_or_shrinks_while_it_is_read_is_whole_lines(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tar` ended with 1 on every journal that was being written, which a nightly script takes for no backup."""
    journal = folder / "runs/a/1/journal.jsonl"

    for number, (change, wanted) in enumerate([("one\ntwo\n", "one\n"), ("", "\n\n\n\n")]):
        journal.write_text("one\n")
        writer = Writer(stream := io.BytesIO(), {})
        writer.add(folder / "secret", "tiltyard.dump")
        with monkeypatch.context() as patch:
            # The header of a member is written between the look at its size and its content.
            patch.setattr(writer._tar, "addfile", later(writer._tar.addfile, journal, change))
            writer.add(journal, f"{FILES_NAME}/journal")
        writer.end()
        (target := tmp_path / str(number)).mkdir()
        unpack(io.BytesIO(stream.getvalue()), target)
        assert (target / FILES_NAME / "journal").read_text() == wanted


def later(add: Callable[..., None], path: Path, text: str) -> Callable[..., None]:
    """The same, after the file was written to."""

    def added(*args: Any) -> None:
        path.write_text(text)
        add(*args)

    return added


def test_a_damaged_or_cut_archive_is_none(folder: Path, tmp_path: Path) -> None:
    whole = archived(folder)
    flipped = bytearray(whole)
    flipped[whole.index(b"one\n")] ^= 1
    cut = whole[: whole.index(END_NAME.encode())]
    none = "no whole backup"
    for number, (data, why) in enumerate([(bytes(flipped), "damaged"), (cut, none), (b"", none), (b"x" * 9999, none)]):
        (target := tmp_path / str(number)).mkdir()
        with pytest.raises(ArchiveError, match=why):
            unpack(io.BytesIO(data), target)
    (target := tmp_path / "without an end").mkdir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("files/x"))
    with pytest.raises(ArchiveError, match="its end is missing"):
        unpack(io.BytesIO(stream.getvalue()), target)


@pytest.mark.parametrize("name", ["files/../../out", "files/link/out", "elsewhere", "/files/x"])
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        link = tarfile.TarInfo("files/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo(name))
    (target := tmp_path / "target").mkdir()
    with pytest.raises(ArchiveError):
        unpack(io.BytesIO(stream.getvalue()), target)
    assert not (tmp_path / "out").exists()


# --- What belongs to it ---------------------------------------------------------------------------------------------
def test_notes_of_processes_and_what_is_made_again_stay_behind(tmp_path: Path) -> None:
    keep = ["identity", "runs/r/1/journal.jsonl", "environments/e/token", "models/trainer.json", "projects/logs/x"]
    leave = ["postgres/data/x", "redis/x", "logs/web.log", "uploads/half", "trash/x", "static/x", "services.json"]
    leave += ["processes.json", "environments/processes.json", "runs/r/1/trainer.json", "runs/r/1/vllm.json"]
    for name in keep + leave:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = {path.relative_to(tmp_path).as_posix() for path in kept(tmp_path) if path.is_file()}
    assert found == set(keep)


@pytest.mark.parametrize("name", ["", "secret_key", "uploads/x", "postgres/data/x", "logs/x", "services.json"])
def test_a_folder_that_was_only_looked_at_is_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / "models").mkdir()
    if name:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    require_empty_folder(tmp_path)


@pytest.mark.parametrize("name", ["identity", "models/deep/x", "runs/r/1/journal.jsonl"])
def test_a_folder_with_anything_of_its_own_is_not(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(Exception, match="is not empty"):
        require_empty_folder(tmp_path)


# --- The commands ---------------------------------------------------------------------------------------------------
@pytest.fixture
def site(
    transactional_db: None, make_run: Callable[..., Run], make_dataset: Callable[..., Any], settings: Any, alice: User
) -> Path:
    """A dataset and a run with a journal whose first line is in the database."""
    make_dataset()
    run = make_run()
    attempt_dir(run.pk, 1).mkdir(parents=True)
    (attempt_dir(run.pk, 1) / JOURNAL_NAME).write_text("{}\n")
    Attempt.objects.create(run=run, number=1, owner="w", started_at=run.created_at, journal_offset=3)
    return Path(settings.DATA_DIR)


@pytest.fixture
def copy(transactional_db: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of another installation: an empty folder, an empty database."""
    url = urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {COPY}")
        connection.execute(f"CREATE DATABASE {COPY}")
    (tmp_path / "copy").mkdir()
    yield {
        **make_child_env(),
        "DATABASE_URL": urlunsplit(url._replace(path=f"/{COPY}")),
        "TILTYARD_DATA_DIR": str(tmp_path / "copy"),
    }
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {COPY} WITH (FORCE)")


def manage(env: dict[str, str], *command: str, code: int = 0, **options: Any) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *command], cwd=ROOT, env=env, capture_output=True, timeout=120, **options
    )
    assert done.returncode == code, done.stderr.decode()[-2000:]
    return (done.stdout + done.stderr).decode(errors="replace")


def rows(env: dict[str, str], query: str) -> list[Any]:
    with psycopg.connect(env["DATABASE_URL"]) as connection:
        return connection.execute(query).fetchall()


def test_a_backup_is_restored_elsewhere_and_only_where_nothing_is(
    site: Path, copy: dict[str, str], tmp_path: Path
) -> None:
    file, here = tmp_path / "tiltyard.tar", make_child_env()
    assert "Backed up 1 runs, 1 datasets, 1 people, 0 checkpoints." in manage(here, "backup", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "tiltyard" in path.name] == ["tiltyard.tar"]
    assert "is there already" in manage(here, "backup", str(file), code=1)
    assert "lies in the data folder" in manage(here, "backup", str(site / "x.tar"), code=1)
    assert not (site / "x.tar").exists() and not list((site / "uploads").glob("backup-*"))

    output = manage(copy, "restore", str(file))
    assert "Restored 1 runs, 1 datasets, 1 people, 0 checkpoints, as they were at 20" in output
    was, now = tables_of(here["DATABASE_URL"]), tables_of(copy["DATABASE_URL"])
    assert differences(was, now) == {} and was.keys() == now.keys() and len(was) > 80
    data = tmp_path / "copy"
    for path in kept(site):
        if path.is_file():
            assert (data / path.relative_to(site)).read_bytes() == path.read_bytes(), path
    assert stat.S_IMODE((data / "runs").stat().st_mode) == 0o700 and not list((data / "uploads").iterdir())
    assert "is not empty" in manage(copy, "restore", str(file), code=1)
    third = copy | {"TILTYARD_DATA_DIR": str(tmp_path / "third")}
    assert "database is not empty" in manage(third, "restore", str(file), code=1)


def test_a_backup_goes_through_pipes(site: Path, copy: dict[str, str], tmp_path: Path) -> None:
    with (tmp_path / "piped").open("wb") as out:
        argv = [sys.executable, "manage.py", "backup", "-"]
        subprocess.run(argv, cwd=ROOT, env=make_child_env(), stdout=out, check=True, timeout=120)
    assert "Restored 1 runs" in manage(copy, "restore", "-", input=(tmp_path / "piped").read_bytes())


def test_what_cannot_be_restored_leaves_all_as_it_was(site: Path, copy: dict[str, str], tmp_path: Path) -> None:
    file, data = tmp_path / "tiltyard.tar", tmp_path / "copy"
    manage(make_child_env(), "backup", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "Nothing was restored. This is no whole backup" in manage(copy, "restore", str(file), code=1)
    newer = tmp_path / "newer.tar"
    with newer.open("wb") as out:
        writer = Writer(out, {"version": "9", "made_at": "", "migrations": [["runs", "9999_later"]]})
        writer.add(file, "tiltyard.dump")
        writer.end()
    assert "newer release (9, with runs.9999_later)" in manage(copy, "restore", str(newer), code=1)
    no_dump = tmp_path / "no-dump.tar"
    with no_dump.open("wb") as out:
        writer = Writer(out, {"version": "9", "made_at": "", "migrations": []})
        writer.add(file, "tiltyard.dump")
        writer.end()
    assert "pg_restore failed" in manage(copy, "restore", str(no_dump), code=1)
    left = [path for path in data.rglob("*") if path.is_file() and path.name != "secret_key"]
    assert left == [] and rows(copy, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_files_go_again_where_the_database_refuses(site: Path, copy: dict[str, str], tmp_path: Path) -> None:
    """A type that is where a table shall be: the folder was moved in already, and half of the tables made."""
    file, data = tmp_path / "tiltyard.tar", tmp_path / "copy"
    manage(make_child_env(), "backup", str(file))
    with psycopg.connect(copy["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TYPE workers_datafolder AS ENUM ('x')")
    output = manage(copy, "restore", str(file), code=1)
    assert "Nothing was restored. psql failed: " in output and "workers_datafolder" in output
    left = [path for path in data.rglob("*") if path.is_file() and path.name != "secret_key"]
    assert left == [] and rows(copy, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_a_journal_that_is_shorter_than_what_was_read_of_it_is_missing(site: Path) -> None:
    attempt = Attempt.objects.get()
    assert held_here().missing == []
    (attempt_dir(attempt.run_id, 1) / JOURNAL_NAME).write_text("{}")  # 3 bytes of it are in the database
    assert held_here().missing == [f"journal of run {attempt.run.name}, attempt 1"]


def test_what_the_database_names_and_the_folder_lacks_is_reported(site: Path, tmp_path: Path) -> None:
    attempt = Attempt.objects.get()
    attempt_dir(attempt.run_id, 1).rename(tmp_path / "away")
    output = manage(make_child_env(), "backup", str(tmp_path / "tiltyard.tar"), code=1)
    assert f"not in the data folder: journal of run {attempt.run.name}, attempt 1." in output
    assert (tmp_path / "tiltyard.tar").exists(), "what is there is kept all the same"
