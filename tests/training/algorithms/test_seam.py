"""What we need of TRL is in one module, complete, and there in the version that is installed."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path

import pytest

from training.algorithms import seam

ROOT = Path(__file__).resolve().parents[3]
OTHERS = {
    "training/rollout/templates.py": "chat templates that TRL carries",
    "training/rollout/family.py": "the version of these templates, for a page of docs",
    "training/memory/tracing.py": "the fused head, whose memory is traced",
}
"""Modules outside ``training/algorithms`` that import TRL, each for no trainer."""


def modules(folder: str = "training") -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")}


def imports(tree: ast.Module) -> set[str]:
    """The packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def test_nothing_else_imports_trl() -> None:
    found = {name for name, tree in modules().items() if "trl" in imports(tree)}
    assert found == {"training/algorithms/seam.py", *OTHERS}


def test_nothing_else_names_the_experimental_argument() -> None:
    """Apart from docstrings: as a name of an argument or as a key."""
    found = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "rollout_func":
                found.add(name)
            if isinstance(node, ast.Constant) and node.value == "rollout_func":
                found.add(name)
    assert found == {"training/algorithms/seam.py"}


def private_uses() -> set[str]:
    """Private names of TRL's and transformers' trainers that modules of ours read, set, call or define."""
    classes = {*seam.GRPOTrainer.__mro__, *seam.DPOTrainer.__mro__, *seam.SFTTrainer.__mro__}
    theirs = [each for each in classes if each.__module__.partition(".")[0] in ("trl", "transformers")]
    text = "".join(inspect.getsource(sys.modules[each.__module__]) for each in theirs)
    known = set(re.findall(r"\bself\.(_[a-z]\w*)", text)) | {name for each in theirs for name in vars(each)}
    found = set()
    for tree in (modules("training/algorithms") | modules("training/policy")).values():
        trainers = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name.endswith("Trainer")]
        trainers += [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "FiniteUpdates"]
        inside = [inner for trainer in trainers for inner in ast.walk(trainer)]
        found |= {node.name for node in inside if isinstance(node, ast.FunctionDef)}
        found |= {node.attr for node in inside if isinstance(node, ast.Attribute) and of_trainer(node.value, "self")}
        everywhere = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        found |= {node.attr for node in everywhere if of_trainer(node.value, "trainer")}
    return {name for name in found & known if name.startswith("_") and not name.startswith("__")}


def of_trainer(value: ast.expr, name: str) -> bool:
    """Whether this is a trainer under its usual name, an attribute of that name, or ``super()``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    if isinstance(value, ast.Attribute):
        return value.attr in (name, f"_{name}")
    return isinstance(value, ast.Name) and value.id == name


def test_the_list_is_complete() -> None:
    listed = {*seam.STATE, *(name for of in seam.METHODS.values() for name in of)}
    used = private_uses()
    assert {"_compute_loss", "_metrics", "_buffered_inputs", "_prepare_dataset"} <= used
    assert used <= listed, f"not listed in training/algorithms/seam.py: {sorted(used - listed)}"


def test_all_of_it_is_there() -> None:
    assert seam.missing() == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("METHODS", {"SFTTrainer": ("_get_grad_norm", "_gone")}, ["SFTTrainer._gone"]),
        ("STATE", ("_step", "_gone"), ["GRPOTrainer._gone"]),
        ("FIELDS", ("advantages", "gone"), ["rows of a sampling: gone"]),
        ("plays_by", lambda _rollouts: {"gone": None}, ["gone"]),
    ],
)
def test_what_a_version_lacks_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, says: list[str]
) -> None:
    monkeypatch.setattr(seam, name, value)
    assert seam.missing() == says
