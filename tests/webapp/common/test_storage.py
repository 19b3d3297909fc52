"""Paths stay inside their folder, and an upload is readable by us only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile

from webapp.common.storage import companion, environment_data, file_store, inside


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    (tmp_path / "root" / "tools").mkdir(parents=True)
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    (tmp_path / "root" / "in").symlink_to(tmp_path / "root" / "tools")
    settings.ENVIRONMENT_DATA_DIR = tmp_path / "root"
    return tmp_path / "root"


def test_a_plain_path_lies_in_the_environments_data(root: Path) -> None:
    assert environment_data("tools/a b.json") == (root / "tools" / "a b.json").resolve()
    assert environment_data("in") == (root / "tools").resolve()


@pytest.mark.parametrize(
    "path",
    ["", "/etc", "tools/", "a//b", ".", "..", "../root", "tools/../..", ".hidden", "a/.b", "a\nb", "out", "out/x"],
)
def test_any_other_path_is_refused(root: Path, path: str) -> None:
    with pytest.raises(ValueError, match=r"not a plain path|leaves its folder"):
        environment_data(path)


def test_nothing_leads_out_of_a_folder(root: Path) -> None:
    assert inside(root, "tools/../tools") == (root / "tools").resolve() and inside(root, "") == root.resolve()
    for path in ("..", "out", "/etc", "../root2"):
        with pytest.raises(ValueError, match="leaves its folder"):
            inside(root, path)


def test_a_dataset_has_companions_of_known_kinds() -> None:
    assert companion("0" * 32, "ids").parts[-2:] == ("companions", "ids")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a kind"):
        companion("0" * 32, "../x")  # type: ignore[arg-type]


def test_an_upload_is_ours_alone_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    file_store(SimpleUploadedFile("a", b"small"), path)
    assert path.read_bytes() == b"small" and path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        file_store(SimpleUploadedFile("a", b"other"), path)
    assert path.read_bytes() == b"small"


def test_a_large_upload_is_moved(tmp_path: Path) -> None:
    with TemporaryUploadedFile("a", "text/plain", 5, None) as large:
        large.write(b"large")
        large.flush()
        before, path = Path(large.temporary_file_path()), tmp_path / "data"
        before.chmod(0o644)
        number = before.stat().st_ino
        file_store(large, path)
        assert path.stat().st_ino == number, "it was copied"
        assert path.read_bytes() == b"large" and path.stat().st_mode & 0o777 == 0o600
        before.touch()  # which closing it deletes
