"""The program inside: confines itself, reads code once, then answers one line for each episode, until its pipe closes.

Requests and answers are JSON lines on descriptors 0 and 1. Nothing here guards against the code: whatever it does to
this interpreter, the kernel lets it do no more than this program needs. The audit hook and the list of modules are
there to say early, and in a sentence, what was tried.

The code's top level runs again for each episode, so that no episode sees what another one left in a global variable.
"""

from __future__ import annotations

import builtins
import importlib
import io
import json
import math
import os
import signal
import sys
import warnings
from types import CodeType
from typing import Any, NoReturn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from training.sandbox.confinement import Unavailable, confine
from training.sandbox.modules import ALLOWED, LOADED_TOO

FILE = "<reward>"
GRACE_S = 2.0
MAX_TEXT, MAX_PRINTED = 300, 2000
_LEFT_OUT = ("breakpoint", "exit", "quit", "help", "copyright", "credits", "license")
_KINDS = {
    "open": "file",
    "os": "file",
    "shutil": "file",
    "tempfile": "file",
    "glob": "file",
    "socket": "socket",
    "subprocess": "process",
    "pty": "process",
    "ctypes": "native",
    "mmap": "native",
    "_thread": "thread",
    "signal": "process",
    "resource": "process",
    "sqlite3": "file",
    "import": "import",
}
_PROCESS = {"os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill", "os.killpg"}


class Refused(PermissionError):
    """Something that is not allowed here was tried."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{what} is not allowed in a custom reward")
        self.kind = kind
        self.what = what


class Printed(io.TextIOBase):
    """Keeps the first characters that are printed, and counts nothing more."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        self.text += str(text)[: MAX_PRINTED - len(self.text)]
        return len(text)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    kind = "process" if event in _PROCESS else _KINDS.get(event.partition(".")[0], "")
    if kind:
        shown = f"import {arguments[0]}" if kind == "import" else event
        raise Refused(kind, str(shown)[:100])


def _import(name: str, *rest: Any, **named: Any) -> Any:
    if str(name).partition(".")[0] not in ALLOWED and name not in (*LOADED_TOO, *sys.argv[2:3]):
        raise Refused("import", f"import {name}"[:100])
    return builtins.__import__(name, *rest, **named)


def _no_file(*_rest: Any, **_named: Any) -> NoReturn:
    raise Refused("file", "open")


def _write_answer(answer: dict[str, Any]) -> None:
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def _failing_line(error: BaseException) -> int | None:
    """The last line of the code itself that the error went through."""
    if isinstance(error, SyntaxError):
        return error.lineno
    found, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE:
            found = step.tb_lineno
        step = step.tb_next
    return found


def _problem(error: BaseException) -> dict[str, Any]:
    kinds = ((MemoryError, "memory"), (RecursionError, "recursion"), (SystemExit, "exit"), (SyntaxError, "syntax"))
    kind = next((kind for cls, kind in kinds if isinstance(error, cls)), "raised")
    text = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
    if isinstance(error, Refused):
        kind, text = error.kind, error.what
    elif isinstance(error, OSError) and error.errno == 1:
        kind = "refused"
    return {"kind": kind, "text": str(text)[:MAX_TEXT], "line": _failing_line(error)}


def _checked_number(value: Any) -> dict[str, Any]:
    """The value as a number, or what it is instead; the parent looks at it again."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {"kind": "type", "text": type(value).__name__[:MAX_TEXT], "line": None}
    try:
        number = float.__float__(value) if isinstance(value, float) else float(int.__int__(value))
    except OverflowError:
        return {"kind": "not_finite", "text": "inf", "line": None}
    if not math.isfinite(number):
        return {"kind": "not_finite", "text": repr(number), "line": None}
    return {"value": number}


def _play(code: CodeType, names: dict[str, Any], episode: Any) -> dict[str, Any]:
    own: dict[str, Any] = {"__name__": "reward", "__builtins__": dict(names)}
    exec(code, own)  # noqa: S102 - what this process is for
    function = own.get("reward")
    if not callable(function):
        return {"kind": "no_function", "text": "", "line": None}
    return _checked_number(function(episode))


def _answer(code: CodeType, names: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    printed = Printed()
    sys.stdout = sys.stderr = printed
    # Ends this process where the parent no longer can.
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"] + GRACE_S)
    try:
        found = _play(code, names, request["episode"])
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: it is the code's, whatever it is
        try:
            found = _problem(error)
        except BaseException:  # an error that cannot even be printed
            found = {"kind": "raised", "text": "an error that cannot be shown", "line": None}
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {"id": request["id"], "printed": printed.text, **found}


def _requests() -> Any:
    """The parent's lines, parsed."""
    buffer = bytearray()
    while chunk := os.read(0, 1 << 20):
        buffer += chunk
        if chunk.endswith(b"\n"):  # the parent sends the next line only after an answer
            yield json.loads(buffer)
            buffer = bytearray()


def _prepare() -> dict[str, Any]:
    """Load everything that may be used, and what it loads later by itself; the names that the code begins with."""
    for name in (*ALLOWED, *LOADED_TOO):
        importlib.import_module(name)
    for library in sys.argv[2:3]:  # ours, with what it needs of the installed packages
        sys.path.append(sys.argv[3])
        importlib.import_module(library).warm()
    for codec in ("utf-16", "utf-32", "latin-1", "ascii", "gb18030", "unicode_escape"):
        "x".encode(codec)
    warnings.simplefilter("ignore")
    names = {name: value for name, value in vars(builtins).items() if name not in _LEFT_OUT}
    return {**names, "__import__": _import, "open": _no_file, "input": _no_file}


def _end(code: int) -> NoReturn:
    os._exit(code)  # the interpreter's own way out would ask for calls that are no longer allowed


def main() -> NoReturn:
    """Confine, read the code, answer."""
    names = _prepare()
    requests = _requests()
    try:
        done = confine(int(sys.argv[1]))
    except Unavailable as exc:
        _write_answer({"kind": "unavailable", "text": str(exc)[:MAX_TEXT]})
        _end(3)
    sys.addaudithook(_hook)
    _write_answer({"confined": done})
    code = None
    try:
        code = compile(next(requests)["code"], FILE, "exec", dont_inherit=True)
    except StopIteration:
        _end(0)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        kind = "memory" if isinstance(error, MemoryError) else "syntax"
        _write_answer({**_problem(error), "kind": kind})
        _end(0)
    _write_answer({"ready": True})
    for request in requests:
        _write_answer(_answer(code, names, request))
    _end(0)


if __name__ == "__main__":
    main()
