"""The size and the shape of the source: ``python -m benchmarks.house``.

Prints JSON. Counted are the files that git tracks, without migrations; a room is a folder of ``webapp``.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("webapp", "training", "envs", "client")
RUN = 10  # lines that two files share, without blank lines, comments and imports
LIMITS = {
    "rooms": 26,
    "floors": 12,
    "python_files": 750,
    "python_lines": 105_000,
    "script_lines": 10_000,
    "template_lines": 10_000,
    "import_share": 0.07,
    "doors_of_training": 40,
    "repeated": 0,
}


def tracked(*endings: str) -> list[Path]:
    """The tracked files with these endings."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name.endswith(endings) and (path := ROOT / name).is_file()]


def product() -> list[Path]:
    """The Python of the product."""
    files = [path.relative_to(ROOT) for path in tracked(".py")]
    return [ROOT / path for path in files if path.parts[0] in PRODUCT and "migrations" not in path.parts]


def lines(paths: Iterable[Path]) -> int:
    """All their lines."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def import_lines(path: Path) -> int:
    """Lines of import statements, wherever they are in the file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(
        (node.end_lineno or 0) - node.lineno + 1 for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
    )


def doors(files: Iterable[Path]) -> set[str]:
    """The modules of ``training`` that these files import, in functions and for types, too."""
    found = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "training"}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "training":
                found |= {
                    name if _is_module(name := f"{node.module}.{each.name}") else str(node.module)
                    for each in node.names
                }
    return found


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def repeated() -> list[str]:
    """Pairs of files of the product (Python, scripts, templates) with a run of ``RUN`` equal lines in both."""
    places: dict[tuple[str, ...], set[str]] = defaultdict(set)
    folders = (ROOT / "templates", ROOT / "static")
    for path in [*product(), *(path for path in tracked(".html", ".js") if set(path.parents) & set(folders))]:
        text = list(_bare_lines(path))
        for start in range(len(text) - RUN + 1):
            places[tuple(text[start : start + RUN])].add(path.relative_to(ROOT).as_posix())
    pairs = {pair for names in places.values() for pair in pairwise(sorted(names))}
    return sorted(f"{first} ~ {second}" for first, second in pairs)


def _bare_lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        bare = line.strip()
        if re.search(r"\w", bare) and not bare.startswith(("#", "//", "import ", "from ", "{% load", "{% extends")):
            yield bare


def main() -> None:
    """Print the table."""
    from tests.test_architecture import floors, rooms_of_the_web

    graph, web = rooms_of_the_web(), [path for path in product() if path.is_relative_to(ROOT / "webapp")]
    scripts = [path for path in tracked(".js") if path.is_relative_to(ROOT / "static")]
    templates = [path for path in tracked(".html", ".txt") if path.is_relative_to(ROOT / "templates")]
    found = {
        "rooms": len(graph),
        "floors": max(floors(graph).values()),
        "python_files": len(product()),
        "python_lines": lines(product()),
        "script_lines": lines(path for path in scripts if "vendor" not in path.parts),
        "template_lines": lines(templates),
        "import_share": round(sum(map(import_lines, web)) / lines(web), 4),
        "doors_of_training": len(doors(web)),
        "repeated": len(pairs := repeated()),
    }
    missed = sorted(name for name, value in found.items() if value > LIMITS[name])
    print(json.dumps({"found": found, "limits": LIMITS, "missed": missed, "pairs": pairs}, indent=2))


if __name__ == "__main__":
    main()
