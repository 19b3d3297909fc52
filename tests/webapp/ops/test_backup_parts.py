"""The parts of a backup without a server: what is kept, refused, counted, and taken back where it fails."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from webapp.ops import backup
from webapp.ops.backup import BackupError, Held
from webapp.runs.models import Attempt

HELD = Held(runs=1, datasets=2, people=3, checkpoints=4)


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "a0."), (5, "a0, a1, a2, a3, a4."), (6, "a0, a1, a2, a3, a4 and 1 more."), (9, "a3, a4 and 4 more.")],
)
def test_five_missing_files_are_named_and_the_others_counted(count: int, said: str) -> None:
    text = backup.lacking(Held(1, 1, 1, 1, missing=[f"a{number}" for number in range(count)]))
    assert text.startswith("The database names files that are not in the data folder: a0") and text.endswith(said)
    assert backup.lacking(HELD) == "" and str(HELD) == "1 runs, 2 datasets, 3 people, 4 checkpoints"


def test_only_at_the_top_of_the_folder_is_a_name_left_out(tmp_path: Path) -> None:
    for name in ("logs/a", "runs/x/logs/b", "runs/x/up.lock", "up.lock", "trash/c", "services.json", "secret_key"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [path.relative_to(tmp_path).as_posix() for path in backup.kept(tmp_path)]
    assert names == ["runs", "secret_key", "runs/x", "runs/x/logs", "runs/x/up.lock", "runs/x/logs/b"]


@pytest.mark.parametrize("place", ["there", "inside"])
def test_a_backup_replaces_nothing_and_lies_outside(tmp_path: Path, monkeypatch: Any, place: str) -> None:
    monkeypatch.setattr(backup, "_write_backup", lambda data, file: HELD)
    (data := tmp_path / "data").mkdir()
    target = tmp_path / "backup.tar" if place == "there" else data / "backup.tar"
    if place == "there":
        target.write_bytes(b"old")
    with pytest.raises(BackupError, match="is there already" if place == "there" else "lies in the data folder"):
        backup.backup(data, target)
    assert [path.name for path in tmp_path.rglob("*.tar*")] == (["backup.tar"] if place == "there" else [])


def test_a_backup_is_complete_or_not_there(tmp_path: Path, monkeypatch: Any) -> None:
    def written(data: Path, file: Any) -> Held:
        file.write(b"whole")
        assert not (tmp_path / "b.tar").exists()
        return HELD

    def broken(data: Path, file: Any) -> Held:
        file.write(b"half")
        raise OSError("full")

    (data := tmp_path / "data").mkdir()
    monkeypatch.setattr(backup, "_write_backup", broken)
    with pytest.raises(OSError, match="full"):
        backup.backup(data, tmp_path / "b.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    monkeypatch.setattr(backup, "_write_backup", written)
    assert backup.backup(data, tmp_path / "b.tar") == HELD
    assert {path.name for path in tmp_path.iterdir()} == {"data", "b.tar"}
    assert (tmp_path / "b.tar").read_bytes() == b"whole" and (tmp_path / "b.tar").stat().st_mode & 0o777 == 0o600


def test_a_program_of_the_database_that_fails_says_its_last_words(monkeypatch: Any) -> None:
    monkeypatch.setattr(backup, "postgres_env", lambda url: {})
    done = SimpleNamespace(returncode=1, stderr=b"first" + b"x" * 795 + b"last\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: done)
    with pytest.raises(BackupError) as refused:
        backup.postgres_program("postgres://", "pg_dump", "--x")
    assert str(refused.value) == "pg_dump failed: t" + "x" * 795 + "last"
    done.returncode = 0
    backup.postgres_program("postgres://", "pg_dump", "--x")


@pytest.mark.parametrize(("before", "after"), [(b"", b"--"), (b"-- dump\n", b"-- dump\n--"), (None, None)])
def test_a_setting_that_older_servers_do_not_know_is_made_a_comment(
    tmp_path: Path, monkeypatch: Any, before: bytes | None, after: bytes | None
) -> None:
    line, rest = b"SET transaction_timeout = 0;\n", b"SELECT 1;\n"
    script = rest if before is None else before + line + rest
    monkeypatch.setattr(backup, "postgres_program", lambda url, *command: Path(command[-2]).write_bytes(script))
    found = backup._dump_as_sql("postgres://", tmp_path / "tiltyard.dump")
    assert found == tmp_path / "tiltyard.sql"
    assert found.read_bytes() == (rest if after is None else after + line[2:] + rest)


def test_files_are_moved_into_folders_that_are_there(tmp_path: Path) -> None:
    source, target, elsewhere = tmp_path / "source", tmp_path / "target", tmp_path / "elsewhere"
    for name in ("runs/a", "runs/b", "secret"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("new")
    (target / "runs").mkdir(parents=True)
    (target / "runs/b").write_text("old")
    (target / "runs/c").write_text("kept")
    elsewhere.mkdir()
    (source / "link").symlink_to(elsewhere)
    backup._move_into(source, target)
    texts = {path.name: path.read_text() for path in target.rglob("*") if path.is_file()}
    assert texts == {"a": "new", "b": "new", "c": "kept", "secret": "new"}
    assert (target / "link").is_symlink() and list(elsewhere.iterdir()) == []


def test_a_backup_of_a_newer_release_is_refused_by_its_first_change() -> None:
    known = ["contenttypes", "0001_initial"]
    backup._require_known({"version": "9", "migrations": [known]})
    with pytest.raises(BackupError, match=r"newer release \(9, with runs\.9998_a\)"):
        backup._require_known({"version": "9", "migrations": [known, ["runs", "9998_a"], ["runs", "9999_b"]]})


def test_an_archive_without_a_dump_or_a_head_is_no_backup(tmp_path: Path) -> None:
    stream = io.BytesIO()
    backup.Writer(stream, {"version": "1"}).end()
    stream.seek(0)
    with pytest.raises(backup.ArchiveError, match="no backup of Tiltyard"):
        backup.unpack(stream, tmp_path)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("size", "shipped", "missing"), [(10, False, False), (9, False, True), (None, False, True), (9, True, False)]
)
def test_a_journal_counts_as_missing_where_it_is_shorter_than_what_was_read(
    make_run: Any, size: int | None, shipped: bool, missing: bool
) -> None:
    run = make_run(name="learner", attempt=2)
    Attempt.objects.create(run=run, number=1, started_at=timezone.now(), journal_offset=0)
    Attempt.objects.create(
        run=run, number=2, started_at=timezone.now(), journal_offset=10, shipped_at=timezone.now() if shipped else None
    )
    folder = backup.attempt_dir(run.pk, 2)
    folder.mkdir(parents=True)
    if size is not None:
        (folder / backup.JOURNAL_NAME).write_bytes(b"x" * size)
    assert backup.held_here().missing == (["journal of run learner, attempt 2"] if missing else [])
