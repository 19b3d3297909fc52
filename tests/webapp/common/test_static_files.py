"""Which scripts a page names at once, and when static files have to be collected again."""

from __future__ import annotations

from pathlib import Path

import pytest

from webapp.common import static_files
from webapp.common.static_files import MANIFEST, collected, fingerprint, imported_by, note_collected


def test_a_script_brings_what_it_imports_and_what_that_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "js/pages/a.js": 'import { b } from "../lib/b.js";\nexport * from "./c.js";\nconst d = "../lib/d.js";\n',
        "js/lib/b.js": 'import "./e.js";\nimport {\n  x,\n} from "../pages/a.js";\nimport y from "plain";\n',
        "js/pages/c.js": 'import "../lib/b.js";\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(
        static_files.finders, "find", lambda name: str(tmp_path / name) if (tmp_path / name).exists() else None
    )
    imported_by.cache_clear()
    found = imported_by("js/pages/a.js")
    imported_by.cache_clear()
    assert found == ("js/lib/b.js", "js/pages/c.js", "js/lib/e.js", "js/pages/a.js")


def test_files_are_collected_until_one_changes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "css").mkdir(parents=True)
    target.mkdir()
    (source / "css" / "a.css").write_text("one")
    assert not collected(source, target)
    note_collected(source, target)
    assert not collected(source, target), "no manifest: it was not finished"
    (target / MANIFEST).write_text("{}")
    assert collected(source, target)
    before = fingerprint(source)
    (source / "css" / "a.css").write_text("two")
    assert fingerprint(source) != before and not collected(source, target)
    (source / "css" / "a.css").write_text("one")
    assert fingerprint(source) == before and collected(source, target)
    (source / "css" / "a.css").rename(source / "css" / "b.css")
    assert not collected(source, target)
    (target / "fingerprint").unlink()
    assert not collected(source, target)
