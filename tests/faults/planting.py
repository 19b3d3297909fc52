"""Small faults in Python: limits moved by one, conditions and statements dropped, the wrong one of several, and so on.

All faults of a module are planted into it at once. At each place the module asks ``tests.faults.switch`` whether the
fault is on: ``a < b`` becomes ``a <= b if fault(7) else a < b``, so one process can judge all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "first": "last", "last": "first"}
SWAPPED |= {"earliest": "latest", "latest": "earliest"}
QUERIES = {"filter", "exclude", "get", "update", "Q", "own", "get_object_or_404"}
NOT_DROPPED = ("logger.", "super().__init__", "print(")
FunctionNode = TypeVar("FunctionNode", ast.FunctionDef, ast.AsyncFunctionDef)


class Fault(NamedTuple):
    """A fault: its place, what was there and what is there once it is on (empty for a dropped statement)."""

    number: int
    path: str
    line: int
    function: str
    kind: str
    was: str
    now: str


def plant(text: str, path: str, first: int) -> tuple[str, list[Fault]]:
    """The module with all its faults, numbered from ``first``."""
    planter = _Planter(path, first)
    tree = planter.visit(ast.parse(text))
    head = sum(1 for node in tree.body[:3] if _is_docstring(node) or _is_future(node))
    tree.body.insert(head, ast.parse("from tests.faults.switch import fault as _fault").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)), planter.found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _names_a_value(node: ast.AST) -> bool:
    """Whether it has an effect on the lines around it (``:=``, ``yield``), so that it cannot be written twice."""
    return any(isinstance(part, ast.NamedExpr | ast.Yield | ast.YieldFrom) for part in ast.walk(node))


class _Planter(ast.NodeTransformer):
    """Only bodies of functions: what a module computes when it is imported cannot be switched later."""

    def __init__(self, path: str, first: int) -> None:
        self.found: list[Fault] = []
        self._path, self._next, self._where = path, first, [""]

    def _asked(self, node: Any, kind: str, now: ast.expr | None) -> ast.expr:
        """The question whether a new fault is on."""
        number, self._next = self._next, self._next + 1
        was = ast.unparse(node)
        changed = "" if now is None else ast.unparse(now)
        self.found.append(Fault(number, self._path, node.lineno, self._where[-1], kind, was, changed))
        return ast.Call(ast.Name("_fault", ast.Load()), [ast.Constant(number)], [])

    def _choice(self, node: Any, planted: ast.expr, kind: str, *variants: ast.expr) -> ast.expr:
        """The expression with these faults: ``node`` as it was, ``planted`` with the faults of its parts."""
        if _names_a_value(node):
            return planted
        for variant in variants:
            planted = ast.IfExp(self._asked(node, kind, variant), variant, planted)
        return ast.copy_location(planted, node)

    # --- Where to look ----------------------------------------------------------------------------------------------
    def _function(self, node: FunctionNode) -> FunctionNode:
        self._where.append(f"{self._where[-1]}.{node.name}".lstrip("."))
        keep = 1 if _is_docstring(node.body[0]) else 0
        node.body = [*node.body[:keep], *self._statements(node.body[keep:])]
        self._where.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Its body alone: defaults and decorators are computed once."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """As any other function."""
        return self._function(node)

    def _definitions(self, node: Any, name: str) -> Any:
        self._where.append(name)
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        node.body = [self.visit(each) if isinstance(each, kinds) else each for each in node.body]
        self._where.pop()
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Its functions and classes."""
        return self._definitions(node, "")

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Its methods."""
        return self._definitions(node, f"{self._where[-1]}.{node.name}".lstrip("."))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Every part but annotations; lists of statements may become longer."""
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns"} or isinstance(value, ast.arguments):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, list(self._statements(value)))
            elif isinstance(value, list):
                setattr(node, field, [self.visit(each) if isinstance(each, ast.AST) else each for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
        return node

    def _as_it_is(self, node: ast.AST) -> ast.AST:
        """Texts of errors, patterns, and what ``ast.unparse`` cannot nest."""
        return node

    visit_JoinedStr = visit_Raise = visit_Assert = visit_pattern = _as_it_is

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """A pattern holds constants alone."""
        node.body = list(self._statements(node.body))
        return node

    # --- Kinds of faults --------------------------------------------------------------------------------------------
    def _statements(self, nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Calls for their effect and changes of what exists may be dropped."""
        for node in nodes:
            called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
            stored = isinstance(node, ast.Assign) and all(
                isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
            )
            text, was = ast.unparse(node), deepcopy(node)
            planted = self.visit(node)
            if (called or stored or isinstance(node, ast.AugAssign | ast.Delete)) and not text.startswith(NOT_DROPPED):
                asked = ast.UnaryOp(ast.Not(), self._asked(was, "drop", None))
                planted = ast.copy_location(ast.If(asked, [planted], []), was)
            yield planted

    def visit_If(self, node: ast.If) -> ast.AST:
        """A guard that is not a comparison is taken for true, and for false."""
        was = deepcopy(node.test)
        self.generic_visit(node)
        if not isinstance(was, ast.Compare | ast.BoolOp):
            node.test = self._choice(was, node.test, "guard", ast.Constant(False), ast.Constant(True))
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Limits without or with their own value; equal for different."""
        was, planted = deepcopy(node), self.generic_visit(node)
        for place, operator in enumerate(was.ops):
            turned = deepcopy(was)
            turned.ops[place] = COMPARED[type(operator)]()
            kind = "limit" if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) else "equal"
            planted = self._choice(was, planted, kind, turned)
        return planted

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Each part of a condition dropped."""
        was, planted = deepcopy(node), self.generic_visit(node)
        variants = []
        for place in range(len(was.values)):
            rest = [deepcopy(value) for each, value in enumerate(was.values) if each != place]
            variants.append(rest[0] if len(rest) == 1 else ast.BoolOp(was.op, rest))
        return self._choice(was, planted, "part", *variants)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The smallest for the largest, the first for the last, another order, a term of a query dropped."""
        was, planted = deepcopy(node), self.generic_visit(node)
        name = was.func.attr if isinstance(was.func, ast.Attribute) else getattr(was.func, "id", "")
        for kind, variant in _other_calls(was, name):
            planted = self._choice(was, planted, kind, variant)
        return planted

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """The last for the first, and one more of a slice."""
        was, planted, turned = deepcopy(node), self.generic_visit(node), deepcopy(node)
        if not isinstance(was.ctx, ast.Load):
            return planted
        at, kind = ast.unparse(was.slice), "extreme"
        if at in {"0", "-1"}:
            turned.slice = ast.Constant(-1 if at == "0" else 0)
        elif isinstance(was.slice, ast.Slice) and was.slice.upper is not None and was.slice.step is None:
            more = ast.BinOp(was.slice.upper, ast.Add(), ast.Constant(1))
            turned.slice, kind = ast.Slice(was.slice.lower, more), "limit"
        else:
            return planted
        turned.value = deepcopy(was.value)
        return self._choice(was, planted, kind, turned)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Plus for minus, times for divided by; not of texts."""
        was, planted = deepcopy(node), self.generic_visit(node)
        texts = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(was))
        if type(was.op) not in COMPUTED or texts:
            return planted
        turned = ast.BinOp(was.left, COMPUTED[type(was.op)](), was.right)
        return self._choice(was, planted, "arithmetic", turned)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Numbers from 2 on are one larger."""
        if type(node.value) is int and node.value >= 2:
            return self._choice(node, node, "number", ast.Constant(node.value + 1))
        return node


def _other_calls(was: ast.Call, name: str) -> Iterator[tuple[str, ast.Call]]:
    if name in SWAPPED and (isinstance(was.func, ast.Name) or not was.args):
        turned = deepcopy(was)
        setattr(turned.func, "attr" if isinstance(was.func, ast.Attribute) else "id", SWAPPED[name])
        yield "extreme", turned
    if name in QUERIES and len(was.args) + len(was.keywords) > 1:
        for place, word in enumerate(was.keywords):
            if word.arg:
                shorter = deepcopy(was)
                del shorter.keywords[place]
                yield "query", shorter
    if name == "sorted":
        turned = deepcopy(was)
        given = next((word for word in turned.keywords if word.arg == "reverse"), None)
        turned.keywords = [word for word in turned.keywords if word is not given]
        turned.keywords.append(
            ast.keyword("reverse", ast.UnaryOp(ast.Not(), given.value if given else ast.Constant(False)))
        )
        yield "order", turned
    if name == "order_by":
        for place, given_name in enumerate(was.args):
            if isinstance(given_name, ast.Constant) and isinstance(given_name.value, str):
                turned = deepcopy(was)
                field = given_name.value
                turned.args[place] = ast.Constant(field[1:] if field.startswith("-") else f"-{field}")
                yield "order", turned
