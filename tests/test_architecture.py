"""The walls of docs/INVARIANTS.md, read from the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from webapp.ops.messages import catalogue_problems, messages_collect

ROOT = Path(__file__).resolve().parents[1]
OUR_FOLDERS = ("webapp", "training", "envs", "benchmarks")
WEB_PACKAGES = {"django", "celery", "channels", "channels_redis", "ninja", "webapp"}
SEEDED = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
# Where objects may be fetched by key: the one access module, and modules that only read.
GETTERS = re.compile(r"(^|/)(selectors|access)(/|\.py$|_\w+\.py$)|/migrations/|/management/")


class Source(NamedTuple):
    """One Python file."""

    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> Source:
    return Source(path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def sources(*folders: str) -> list[Source]:
    return [parsed(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(source: Source) -> Iterator[str]:
    """Every module that is imported anywhere in the file, also inside functions and by ``import_module``."""
    package = source.path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level]] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def calls(*folders: str) -> Iterator[tuple[str, ast.Call]]:
    for source in sources(*folders):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call):
                yield f"{source.name}:{node.lineno}", node


def test_training_does_not_know_the_web() -> None:
    wrong = [
        f"{source.name} imports {name}"
        for source in sources("training")
        for name in imports(source)
        if name.split(".")[0] in WEB_PACKAGES
    ]
    assert wrong == []


def test_training_shares_only_the_wire_with_environments() -> None:
    allowed = {"envs", "envs.wire"}
    wrong = [
        f"{source.name} imports {name}"
        for source in sources("training")
        for name in imports(source)
        if name.split(".")[0] == "envs" and ".".join(name.split(".")[:2]) not in allowed
    ]
    assert wrong == []


def test_environments_know_neither_side() -> None:
    wrong = [
        f"{source.name} imports {name}"
        for source in sources("envs")
        for name in imports(source)
        if name.split(".")[0] in {*WEB_PACKAGES, "training"}
    ]
    assert wrong == []


def test_the_web_runs_trainers_only_as_processes() -> None:
    heavy = {"torch", "transformers", "trl", "peft", "accelerate", "vllm"}
    wrong = [
        f"{source.name} imports {name}"
        for source in sources("webapp")
        for name in imports(source)
        if name.split(".")[0] in heavy
    ]
    assert wrong == []


def test_objects_are_fetched_by_key_only_where_access_is_decided() -> None:
    wrong = []
    for place, node in calls("webapp"):
        if GETTERS.search(place.rsplit(":", 1)[0]):
            continue
        getter = isinstance(node.func, ast.Attribute) and node.func.attr in {"get", "aget"}
        manager = getter and isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "objects"  # type: ignore[attr-defined]
        if manager or called(node) in {"get_object_or_404", "aget_object_or_404"}:
            wrong.append(place)
    assert wrong == []


def test_nothing_is_unpickled() -> None:
    wrong = [
        f"{source.name} imports {name}"
        for source in sources(*OUR_FOLDERS)
        for name in imports(source)
        if name.split(".")[0] in SEEDED
    ]
    for place, node in calls(*OUR_FOLDERS):
        owner = getattr(getattr(node.func, "value", None), "id", "")
        options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        if (owner, called(node)) == ("torch", "load") and options.get("weights_only") is not True:
            wrong.append(f"{place} torch.load without weights_only=True")
        if called(node) in {"unsafe_load", "full_load"}:
            wrong.append(f"{place} unsafe YAML")
    assert wrong == []


def test_no_text_is_run_as_code_and_no_shell_is_used() -> None:
    wrong = []
    for place, node in calls(*OUR_FOLDERS):
        name = called(node)
        owner = getattr(getattr(node.func, "value", None), "id", "")
        confined = place.startswith("training/sandbox/worker.py:")  # docs/adr/0003-sandbox.md
        if isinstance(node.func, ast.Name) and name in {"eval", "exec", "compile"} and not confined:
            wrong.append(f"{place} {name}()")
        shells = {"os.system", "os.popen", "subprocess.getoutput", "asyncio.create_subprocess_shell"}
        if f"{owner}.{name}" in shells:
            wrong.append(f"{place} {name}()")
        for keyword in node.keywords:
            value = getattr(keyword.value, "value", None)
            if keyword.arg in {"shell", "trust_remote_code"} and value is not False:
                wrong.append(f"{place} {keyword.arg}={value}")
    assert wrong == []


TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
BAD_MARKUP = {
    "inline script": re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*type=[\"']application/(?:ld\+)?json)[^>]*>", re.I),
    "inline style element": re.compile(r"<style[\s>]", re.I),
    "event handler": re.compile(r"<[a-z][^>]*\son[a-z]+\s*=", re.I),
    "style attribute": re.compile(r"<[a-z][^>]*\sstyle\s*=", re.I),
    "javascript: address": re.compile(r"(?:href|src|action)\s*=\s*[\"']\s*javascript:", re.I),
    "unescaped output": re.compile(r"\|\s*safe\b|\{%\s*autoescape\s+off"),
    "file of another site": re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=[\"'](?:https?:)?//", re.I),
}


@pytest.mark.parametrize("problem", BAD_MARKUP)
def test_templates_have_no(problem: str) -> None:
    pattern = BAD_MARKUP[problem]
    wrong = []
    for path in TEMPLATES:
        text = re.sub(r"{#.*?#}|{% comment.*?endcomment %}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        wrong += [f"{path.relative_to(ROOT)}: {match[0][:80]}" for match in pattern.finditer(text)]
    assert wrong == []


def test_scripts_do_not_write_markup_from_data() -> None:
    pattern = re.compile(r"\.(?:innerHTML|outerHTML)\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function\(")
    paths = [path for path in (ROOT / "static").rglob("*.js") if "vendor" not in path.parts]
    wrong = [f"{path.relative_to(ROOT)}: {match[0]}" for path in paths for match in pattern.finditer(path.read_text())]
    assert wrong == []


def test_every_text_has_its_chinese() -> None:
    path = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
    problems = catalogue_problems(path, messages_collect(ROOT))
    shown = "\n".join(problems[:40])
    assert not problems, f"{len(problems)} problems; `make messages`, then translate:\n{shown}"


def test_no_file_grows_beyond_reading() -> None:
    limits = {".py": 400, ".js": 300, ".html": 200}
    wrong = []
    for folder in ("webapp", "training", "envs", "static/js", "templates", "tests"):
        for path in (ROOT / folder).rglob("*.*"):
            name, limit = path.relative_to(ROOT).as_posix(), limits.get(path.suffix)
            if limit is None or {"migrations", "node_modules"} & set(path.parts):
                continue
            if (lines := path.read_text().count("\n")) > limit:
                wrong.append(f"{name}: {lines} lines")
    assert wrong == []
