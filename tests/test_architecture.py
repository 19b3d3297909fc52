"""The walls of docs/INVARIANTS.md, read from the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from training.garbage import no_collections
from webapp.ops.management.commands.collect_messages import catalogue_problems, messages_collect

ROOT = Path(__file__).resolve().parents[1]
OUR_FOLDERS = ("webapp", "training", "envs", "benchmarks")
WEB_PACKAGES = {"django", "celery", "channels", "channels_redis", "ninja", "webapp"}
SEEDED = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
HTTP_CLIENTS = {
    "httpx",
    "httpcore",
    "h11",
    "h2",
    "aiohttp",
    "requests",
    "urllib3",
    "urllib.request",
    "http.client",
    "pycurl",
    "websockets.sync.client",
    "websockets.asyncio.client",
}
# Who may name an HTTP client, and why.
OUTBOUND = {
    "training/connections.py": {"httpx", "httpcore"},  # the one outbound client, and its connections between requests
    "training/rollout/client.py": {"websockets.asyncio.client"},  # over a socket that training/connections.py dialled
    "envs/toolbench/endpoint.py": {"httpx"},  # a server's own process; its one address is set by the operator at start
    "webapp/ops/programs.py": {"http.client"},  # the errors of xmlrpc, spoken with supervisord over its own socket
    "webapp/environments/launchers.py": {"requests"},  # the errors of the docker library
}
# Who may start a process that continues while we do something else, and why.
STARTERS = {
    "training/reporting/starting.py",  # one process a tracker, which reads the journal as long as the run lasts
    "training/policy/vllm_server.py",  # vLLM's keeper, as long as the run lasts
    "training/policy/vllm_keeper.py",  # vLLM, until the pipe of the run closes
    "training/verl_backend/learner.py",  # verl's process, which a pipe of ours ends
    "training/children.py",  # short-lived programs with their limits, and those that answer over both their pipes
    "webapp/engine/trainer.py",  # the trainer, which a supervisor watches
    "webapp/chat/holder.py",  # a model that is talked with over both its pipes
    "webapp/environments/launchers.py",  # servers of environments
    "webapp/common/host.py",  # PostgreSQL and Redis
    "webapp/ops/programs.py",  # supervisord
    "webapp/ops/up.py",  # commands of `up` that last as long as it does
}
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


@cache
def walked(source: Source) -> list[ast.AST]:
    """All nodes of a file: a dozen tests look through them."""
    return list(ast.walk(source.tree))


def sources(*folders: str) -> list[Source]:
    return [parsed(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(source: Source) -> Iterator[str]:
    """Every module that is imported anywhere in the file, also inside functions and by ``import_module``."""
    for node in walked(source):
        yield from names_in(node, source)


def names_in(node: ast.AST, source: Source) -> list[str]:
    """What one node imports; of ``from a import b`` first ``a``, then ``a.b``, whatever ``b`` is."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = source.path.relative_to(ROOT).with_suffix("").parts
        base = [*package[: len(package) - node.level]] if node.level else []
        stem = ".".join([*base, *([node.module] if node.module else [])])
        return [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
        return [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def calls(*folders: str) -> Iterator[tuple[str, ast.Call]]:
    for source in sources(*folders):
        for node in walked(source):
            if isinstance(node, ast.Call):
                yield f"{source.name}:{node.lineno}", node


@cache
def modules() -> dict[str, Source]:
    """Our modules by name; a package is under its own name."""
    named = {}
    for source in sources("webapp", "training", "envs"):
        parts = source.path.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = source
    return named


@cache
def imported_modules() -> dict[str, set[str]]:
    """Which of our modules each of them names anywhere: in functions and for types alone, too."""
    known = modules()
    return {module: set(named_modules(source, set(known))) - {module} for module, source in known.items()}


def named_modules(source: Source, known: set[str]) -> Iterator[str]:
    """``from a import b`` names ``a.b`` where that is a module, and else the text of ``a`` itself."""
    for node in walked(source):
        names = names_in(node, source)
        if isinstance(node, ast.ImportFrom):
            stem, *rest = names
            names = [name if name in known else stem for name in rest]
        yield from (name for name in names if name in known)


def circles(imported: dict[str, set[str]]) -> list[str]:
    """Circles of modules, and in every folder circles of what lies in it; a sub-folder counts with all in it."""
    folders = {module.rsplit(".", depth)[0] for module in imported for depth in range(1, module.count(".") + 1)}
    levels = {"modules": imported}
    for folder in sorted(folders):
        levels[folder] = {}
        for module, names in imported.items():
            if (unit := unit_of(module, folder)) is not None:
                others = {other for name in names if (other := unit_of(name, folder)) not in {None, unit}}
                levels[folder].setdefault(unit, set()).update(others)  # type: ignore[arg-type]
    found = []
    for level, graph in levels.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            found.append(f"{level}: {' ← '.join(error.args[1])}")
    return found


def unit_of(module: str, folder: str) -> str | None:
    """The module or sub-folder of ``folder`` that holds ``module``; the folder's own ``__init__`` is one of them."""
    if module == folder:
        return "__init__"
    return module.removeprefix(f"{folder}.").split(".")[0] if module.startswith(f"{folder}.") else None


@pytest.fixture(scope="module", autouse=True)
def _no_walk_through_the_trees() -> Iterator[None]:
    """Every file as a tree is millions of objects, none of them garbage: no look for it walks them, and none stays."""
    with no_collections():
        yield
    for kept in (parsed, walked, modules, imported_modules, known_names):
        kept.cache_clear()


def test_nothing_imports_in_a_circle() -> None:
    assert circles(imported_modules()) == []


def test_a_circle_is_seen_between_modules_and_between_folders() -> None:
    assert circles({"a.x": {"a.y"}, "a.y": {"a.x"}}) == ["modules: a.x ← a.y ← a.x", "a: x ← y ← x"]
    between = {"a.x.low": set(), "a.x.top": {"a.y.one"}, "a.y.one": {"a.x.low"}}
    assert circles(between) == ["a: x ← y ← x"]
    inside = {"a.base": set(), "a.x": {"a.base"}, "a.top": {"a.x"}, "a": set()}
    assert circles(inside) == []


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """How far each room is from one that imports no other, which is on floor 1."""
    found: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():
        found[room] = 1 + max((found[other] for other in graph.get(room, ())), default=0)
    return found


def rooms_of_the_web() -> dict[str, set[str]]:
    """Each room and loose module of ``webapp`` with those that it imports."""
    graph: dict[str, set[str]] = {}
    for module, names in imported_modules().items():
        if (room := unit_of(module, "webapp")) not in {None, "__init__"}:
            others = {other for name in names if (other := unit_of(name, "webapp")) not in {None, "__init__", room}}
            graph.setdefault(room, set()).update(others)  # type: ignore[arg-type]
    return graph


def test_the_web_has_few_rooms_on_the_floors_that_its_map_shows() -> None:
    graph = rooms_of_the_web()
    found, rooms = floors(graph), {name for name in graph if (ROOT / "webapp" / name).is_dir()}
    assert len(graph) <= 26 and max(found.values()) <= 12
    rows = re.findall(r"^\| (\d+) \| `webapp/(\w+)/` \|", (ROOT / "docs/architecture.md").read_text(), re.M)
    assert {room: int(floor) for floor, room in rows} == {room: found[room] for room in rooms}


def test_floors_are_counted_from_below() -> None:
    assert floors({"top": {"left", "base"}, "left": {"base"}, "base": set()}) == {"base": 1, "left": 2, "top": 3}


@cache
def known_names(source: Source) -> set[str]:
    """What a module has for others: whatever is bound in it outside functions and classes."""
    names: set[str] = set()
    todo: list[ast.AST] = list(source.tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            names |= {
                item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
            }
            todo += [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.stmt)]
    return names


def test_what_is_imported_inside_functions_is_there() -> None:
    """A name that moved is not missed before that line runs; a benchmark was broken so for days."""
    there, missing = modules(), []
    for source in sources(*OUR_FOLDERS, "tests"):
        for node in walked(source):
            if (
                not isinstance(node, ast.ImportFrom)
                or node.level
                or (node.module or "").split(".")[0] not in ("webapp", "training", "envs")
            ):
                continue
            target = there.get(node.module or "")
            names = known_names(target) if target is not None else set()
            missing += [
                f"{source.name}:{node.lineno}: {node.module}.{alias.name}"
                for alias in node.names
                if alias.name not in names | {"*", "__file__", "__main__"}
                and f"{node.module}.{alias.name}" not in there
            ]
    assert missing == []


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


@pytest.mark.parametrize(
    "code",
    [
        "import training.main, training.chat.serve, training.rewards.lab.scoring, training.rollout.collector",
        "import webapp.asgi; from webapp.celery import app; app.loader.import_default_modules()",
    ],
)
def test_what_needs_no_model_loads_no_torch(code: str) -> None:
    """Each such process would start seconds later and hold 300 MB more; one import of a name is enough."""
    code += "; import sys; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def http_clients(source: Source) -> set[str]:
    """The HTTP clients that a file names, by the names of the table above."""
    named = set(imports(source))
    return {client for client in HTTP_CLIENTS if any(f"{name}.".startswith(f"{client}.") for name in named)}


def test_one_client_speaks_http() -> None:
    found = {source.name: http_clients(source) for source in sources("webapp", "training", "envs")}
    assert {name: clients for name, clients in found.items() if clients} == OUTBOUND


def test_children_with_limits_are_started_in_one_place() -> None:
    found = {place.rsplit(":", 1)[0] for place, node in calls("webapp", "training", "envs") if called(node) == "Popen"}
    assert found == STARTERS


def test_an_http_client_is_seen_however_it_is_imported() -> None:
    lines = ["import httpx", "from urllib import request", "import http.client as c", "from h11 import Connection"]
    text = "def f() -> None:\n" + "".join(f"    {line}\n" for line in lines)
    made = Source(ROOT / "training" / "made.py", ast.parse(text))
    assert http_clients(made) == {"httpx", "urllib.request", "http.client", "h11"}


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
    """CONTRIBUTING.md says when to split one before."""
    limits = {".py": 600, ".js": 300, ".html": 200}
    wrong = []
    for folder in ("webapp", "training", "envs", "static/js", "templates", "tests"):
        for path in (ROOT / folder).rglob("*.*"):
            name, limit = path.relative_to(ROOT).as_posix(), limits.get(path.suffix)
            if limit is None or {"migrations", "node_modules"} & set(path.parts):
                continue
            if (lines := path.read_text().count("\n")) > limit:
                wrong.append(f"{name}: {lines} lines")
    assert wrong == []
