"""Plotly's megabyte came with every tab, and files that were not hashed or compressed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.template.loader import render_to_string
from django.test import Client, override_settings
from django.utils import timezone
from whitenoise.storage import CompressedManifestStaticFilesStorage

from tests.markup import dense
from webapp.common.static_files import PLOTLY, HashedStorage, collected, fingerprint, imported_by, note_collected
from webapp.runs.models import RunEvent
from webapp.site.run_pages import page

ROOT = Path(__file__).resolve().parents[4]
Clients = Callable[..., Client]
HASHED = re.compile(r"\.[0-9a-f]{12}\.")
PLAIN = {"staticfiles": {"BACKEND": "tests.webapp.site.run_pages.test_lean.Plain"}}


class Plain(HashedStorage):
    """Without the compressed copies."""

    def post_process(self, *args: Any, **kwargs: Any) -> Any:
        return super(CompressedManifestStaticFilesStorage, self).post_process(*args, **kwargs)


@pytest.fixture(scope="module")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collected as `up` does, without compressing: that takes seconds, and a test of `up` looks at it."""
    folder = tmp_path_factory.mktemp("static")
    with override_settings(STATIC_ROOT=folder, STORAGES=PLAIN):
        call_command("collectstatic", "--noinput", verbosity=0)
    return folder


def test_every_import_and_image_leads_to_a_hashed_file(static_root: Path) -> None:
    scripts = [path for path in (static_root / "js").rglob("*.js") if HASHED.search(path.name)]
    assert len(scripts) == len(list((ROOT / "static/js").rglob("*.js")))
    for path in scripts:
        code = "\n".join(line for line in path.read_text().splitlines() if line.startswith("import "))
        for found in re.findall(r'from "(\.[^"]+)"', code):
            assert HASHED.search(found) and (path.parent / found).exists(), (path.name, found)
    for path in (static_root / "css").rglob("*.css"):
        if HASHED.search(path.name):
            for found in re.findall(r"url\(['\"]?([^'\")]+)", path.read_text()):
                assert found.startswith("data:") or HASHED.search(found), (path.name, found)


def test_scripts_take_icons_from_the_file_that_is_served(static_root: Path) -> None:
    """Icons made by scripts came from `img/icons.svg`, which under `up` is served under its hashed name alone: 404."""
    for path in (ROOT / "static/js").rglob("*.js"):
        assert "import.meta" not in path.read_text(), f"{path.name} addresses a file by a name without its hash"
    with override_settings(STATIC_ROOT=static_root, STORAGES=PLAIN, STATIC_URL="/static/"):
        address = re.search(r'data-icons="/static/([^"]+)"', render_to_string("base.html", {"language": "en"}))
    assert address is not None and HASHED.search(address[1]) and (static_root / address[1]).exists()


def test_files_are_collected_again_when_one_changed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "a.js").write_text("1")
    assert not collected(source, target)
    (target / "staticfiles.json").write_text("{}")
    note_collected(source, target)
    assert collected(source, target)
    before = fingerprint(source)
    (source / "a.js").write_text("2")
    assert fingerprint(source) != before and not collected(source, target)


@pytest.mark.django_db
@pytest.mark.parametrize("tab", ["curves", "log", "config", "events"])
def test_no_tab_brings_plotly(tab: str, client_for: Clients, alice: Any, make_run: Any) -> None:
    """The page's script knows where it is, for pictures of charts."""
    run = make_run()
    page = client_for(alice).get(f"/p/{run.project.slug}/runs/{run.pk}/?tab={tab}").content.decode()
    assert PLOTLY not in page.split("</head>")[0] and page.count(PLOTLY) == 1


def test_a_script_brings_all_that_it_imports_each_once() -> None:
    found = imported_by("js/pages/run.js")
    assert len(found) == len(set(found)) and "js/pages/run.js" not in found
    assert {"js/lib/dom.js", "js/pages/run_curves.js", "js/lib/stack.js", "js/app.js"} <= set(found)  # of four layers
    wanted = {
        path.resolve().relative_to(ROOT / "static").as_posix()
        for script in ("js/pages/run.js", *found)
        for name in re.findall(r'^(?:import|\} from)[^"]*"([^"]+)"', (ROOT / "static" / script).read_text(), re.M)
        for path in [(ROOT / "static" / script).parent / name]
    }
    assert wanted == set(found)
    assert imported_by("js/none.js") == ()


def test_every_page_names_the_modules_of_its_script() -> None:
    """But for the run page, they were fetched layer by layer, five to seven of them."""
    scripts = {f"js/pages/{path.name}" for path in (ROOT / "static/js/pages").glob("*.js")}
    used, bare = set(), []
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text()
        used |= set(re.findall(r"module_script '([^']+)'", text))
        bare += [f"{path.name}: {name}" for name in re.findall(r"\{% static '(js/(?:pages/|app)[^']+)' %\}", text)]
    assert not bare
    imported = {name for script in used for name in imported_by(script)}
    assert scripts <= used | imported


@pytest.mark.django_db
def test_the_run_page_names_its_modules_and_opens_its_socket_at_once(
    client_for: Clients, alice: Any, make_run: Any
) -> None:
    run = make_run(seq=7)
    page = dense(client_for(alice).get(f"/p/{run.project.slug}/runs/{run.pk}/").content.decode())
    head = page.split("</head>")[0]
    named = re.findall(r'<link rel="modulepreload" href="/static/([^"]+)">', head)
    assert tuple(named) == imported_by("js/app.js") + imported_by("js/pages/run.js")
    early = re.search(r'<script src="/static/js/lib/early.js" type="module" async\s+data-socket="([^"]+)">', head)
    assert early is not None and early[1] == f"/ws/runs/{run.pk}/?least=7&amp;language=en"


@pytest.mark.django_db
def test_a_long_log_comes_in_parts(client_for: Clients, alice: Any, make_run: Any) -> None:
    run = make_run()
    lines = [
        RunEvent(
            run=run, attempt=1, kind="log", payload={"level": "info", "message": f"line {n};"}, at=timezone.now(), seq=n
        )
        for n in range(100, 100 + 2 * page.LOG_LINES + 50)
    ]
    RunEvent.objects.bulk_create(lines)
    client = client_for(alice)
    url, seen = f"/p/{run.project.slug}/runs/{run.pk}/", []
    text = client.get(url).content.decode()
    assert len(text) < 150_000
    for _part in range(3):
        seen = re.findall(r"line (\d+);", text) + seen
        older = re.search(rf'hx-get="({url}log/older/\?before=\d+)"', text)
        if older is None:
            break
        text = client.get(older[1]).content.decode()
    assert seen == [str(event.seq) for event in lines]  # every line once, in order
