"""Arithmetic from untrusted text: a whitelist of tokens, then a whitelist of syntax nodes; nothing is ever executed.

The limits make every expression answer at once: length and nesting before parsing, digits before each multiplication or
power, so that ``9**9**9`` is refused and not computed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Any, Literal

Language = Literal["en", "zh"]
Number = int | float

MAX_LENGTH = 500
MAX_DEPTH = 32
MAX_DIGITS = 100
MAX_EXPONENT = 1000
SIGNIFICANT_DIGITS = 12

_TOKEN = re.compile(
    r"\s+|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))|(?P<name>[A-Za-z_]\w*)|\*\*|//|[-+*/%^(),\[\]]",
    re.ASCII,
)
# Full-width forms and typographic operators; NFKC would do more, and read 5² as 52.
_SYMBOLS = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {"\u3000": " ", "×": "*", "÷": "/", "\u2212": "-", "\u2013": "-", "∙": "*", "·": "*"}
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sum": sum,
    "pow": pow,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}
_CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_REASONS: dict[str, tuple[str, str]] = {
    "empty": ("the expression is empty", "表达式为空"),
    "long": (f"the expression is longer than {MAX_LENGTH} characters", f"表达式超过 {MAX_LENGTH} 个字符"),
    "deep": (f"the expression is nested deeper than {MAX_DEPTH} levels", f"表达式嵌套超过 {MAX_DEPTH} 层"),
    "symbol": ("a symbol is not allowed", "含有不允许的符号"),
    "name": ("a name is not known", "含有未知的名称"),
    "syntax": ("the expression is not valid", "表达式格式不正确"),
    "large": ("a number or the result is too large", "数字或结果过大"),
    "zero": ("division by zero", "除数不能为零"),
    "domain": ("a function got a value it is not defined for", "函数的取值超出定义域"),
    "arguments": ("a function got the wrong arguments", "函数的参数不正确"),
}


class CalculatorError(ValueError):
    """The expression has no value here. ``reason`` is a key of the texts in both languages."""

    def __init__(self, reason: str) -> None:
        super().__init__(_REASONS[reason][0])
        self.reason = reason

    def text(self, language: Language) -> str:
        """What is wrong, in the language of the task."""
        return _REASONS[self.reason][language == "zh"]


def calculate(expression: str) -> str:
    """The value of ``expression`` as text, or ``CalculatorError``."""
    value = evaluate(expression)
    if isinstance(value, float):
        return str(float(f"{value:.{SIGNIFICANT_DIGITS}g}"))
    return str(value)


def evaluate(expression: str) -> Number:
    """The value of ``expression``, or ``CalculatorError``."""
    tree = _parse(expression)
    try:
        value = _value(tree, 0)
    except CalculatorError:
        raise
    except ZeroDivisionError:
        raise CalculatorError("zero") from None
    except OverflowError:
        raise CalculatorError("large") from None
    except TypeError:
        raise CalculatorError("arguments") from None
    except ValueError:
        raise CalculatorError("domain") from None
    return _number(value)


def _parse(expression: str) -> ast.expr:
    if len(expression) > MAX_LENGTH:
        raise CalculatorError("long")
    text = expression.translate(_SYMBOLS).strip()
    if not text:
        raise CalculatorError("empty")
    _check_tokens(text)
    try:
        return ast.parse(text.replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError):
        raise CalculatorError("syntax") from None
    except (RecursionError, MemoryError):
        raise CalculatorError("deep") from None


def _check_tokens(text: str) -> None:
    """Refuse every symbol and name that arithmetic does not need, before Python's parser sees the text."""
    position = depth = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise CalculatorError("symbol")
        position = token.end()
        name = token["name"]
        if name is not None and name not in _FUNCTIONS and name not in _CONSTANTS:
            raise CalculatorError("name")
        if token["number"] is not None and len(token["number"]) > MAX_DIGITS:
            raise CalculatorError("large")
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise CalculatorError("deep")


def _value(node: ast.expr, depth: int) -> Any:
    if depth > MAX_DEPTH * 8:  # a long sum nests to the left without any bracket
        raise CalculatorError("deep")
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            raise CalculatorError("syntax")
        case ast.Constant(value=value):
            return _number(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            value = _number(_value(operand, depth + 1))
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _binary(op, _number(_value(left, depth + 1)), _number(_value(right, depth + 1)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _call(name, [_value(argument, depth + 1) for argument in arguments])
        case ast.List(elts=items) | ast.Tuple(elts=items) if depth:
            return [_number(_value(item, depth + 1)) for item in items]
        case _:
            raise CalculatorError("syntax")


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow):
        _check_power(left, right)
    elif isinstance(op, ast.Mult) and isinstance(left, int) and isinstance(right, int):
        _check_digits((left.bit_length() + right.bit_length()) * math.log10(2))
    return _number(_OPERATORS[type(op)](left, right))


def _call(name: str, arguments: list[Any]) -> Any:
    if name == "pow":
        if len(arguments) != 2:
            raise CalculatorError("arguments")
        _check_power(_number(arguments[0]), _number(arguments[1]))
    if name == "round" and len(arguments) == 2 and abs(_number(arguments[1])) > MAX_DIGITS:
        raise CalculatorError("large")
    if name == "sum" and len(arguments) > 1:
        arguments = [arguments]
    return _number(_FUNCTIONS[name](*arguments))


def _check_power(base: Number, exponent: Number) -> None:
    if abs(exponent) > MAX_EXPONENT:
        raise CalculatorError("large")
    if isinstance(base, int) and isinstance(exponent, int) and base:
        _check_digits(math.log10(abs(base)) * abs(exponent))


def _check_digits(digits: float) -> None:
    if digits > MAX_DIGITS:
        raise CalculatorError("large")


def _number(value: Any) -> Number:
    """A finite real number of bearable size, or an error."""
    if isinstance(value, complex):
        raise CalculatorError("domain")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CalculatorError("arguments")
    if isinstance(value, float) and not math.isfinite(value):
        raise CalculatorError("large")
    if isinstance(value, int) and value.bit_length() * math.log10(2) > MAX_DIGITS + 1:
        raise CalculatorError("large")
    return value
