"""Checks of the frames that a client sends, before OpenEnv sees them.

OpenEnv ends the session on frames that are JSON but not an object, are binary or nest too deeply, and echoes invalid
input in its error. Here every bad frame has a sentence for an answer, and the session lives on.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, NamedTuple

from pydantic import ValidationError

from envs.wire import ResetRequest, StepRequest

MAX_DEPTH = 48
# A megabyte of empty arrays is 350,000 values, each of them looked at several times; a large row has some thousands.
MAX_VALUES = 50_000
# A string that does not end goes to the end of the text, so that no start of one is looked at twice.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
MAX_TEXT_LENGTH = 300
FRAME_TYPES = ("reset", "step", "state", "close")


class FrameError(Exception):
    """A frame that cannot be played, with OpenEnv's code for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Frame(NamedTuple):
    """A checked frame: its type, and the text to hand on."""

    kind: str
    text: str


def check_frame(text: str | None) -> Frame:
    """Read one frame, or raise ``FrameError`` with a sentence about what is wrong with it."""
    if text is None:
        raise FrameError("INVALID_JSON", "Binary frames are not understood: send JSON as text.")
    if "\\u" in text:
        _check_size(text)
        text = _repaired(text)
    frame = read_object(text)
    kind = frame.get("type")
    if not isinstance(kind, str) or kind not in FRAME_TYPES:
        raise FrameError("UNKNOWN_TYPE", f"Unknown message type; this server knows {', '.join(FRAME_TYPES)}.")
    data = frame.get("data", {})
    if not isinstance(data, dict):
        raise FrameError("VALIDATION_ERROR", "Invalid message: data must be an object.")
    try:
        if kind == "reset":
            ResetRequest.model_validate(data)
        elif kind == "step":
            StepRequest.model_validate(data)
    except ValidationError as error:
        raise FrameError("VALIDATION_ERROR", describe(kind, error)) from None
    if kind in ("reset", "step") and frame.keys() == {"type", "data"}:
        return Frame(kind, text)
    # OpenEnv refuses a frame with fields that it does not know; a newer peer may send some.
    return Frame(kind, json.dumps({"type": kind, "data": data} if kind in ("reset", "step") else {"type": kind}))


def read_object(text: str) -> dict[str, Any]:
    """The JSON object in a text, of bearable depth and size; raises ``FrameError``."""
    _check_size(text)
    try:
        frame = json.loads(text)
    except json.JSONDecodeError as error:
        raise FrameError("INVALID_JSON", f"Invalid JSON: {error.msg} at character {error.pos}.") from None
    except RecursionError:
        raise FrameError("INVALID_JSON", "Invalid JSON: nested too deeply.") from None
    except ValueError:
        raise FrameError("INVALID_JSON", "Invalid JSON: a number has too many digits.") from None
    if not isinstance(frame, dict):
        raise FrameError("VALIDATION_ERROR", "Invalid message: a frame must be a JSON object.")
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth_over(frame, MAX_DEPTH):
        raise FrameError("INVALID_JSON", "Invalid JSON: nested too deeply.")
    return frame


def _check_size(text: str) -> None:
    """Refuse a text of too many values before anything is made of it.

    Counting brackets and commas is a cheap upper bound; those inside of strings are left out only where it matters.
    """
    if _marks(text) > MAX_VALUES and _marks(_STRING.sub("", text)) > MAX_VALUES:
        raise FrameError("INVALID_JSON", f"Invalid JSON: it holds more than {MAX_VALUES} values.")


def _marks(text: str) -> int:
    """Opening brackets and commas: as many values as a JSON text can hold, less one."""
    return text.count("[") + text.count("{") + text.count(",")


def _repaired(text: str) -> str:
    """Put U+FFFD for lone surrogates: Python reads them from ``\\ud800`` and then cannot send them back.

    They come from a model that wrote such an escape; refusing the frame would let it throw its own rollout away.
    """
    try:
        frame = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return frame.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _depth_over(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def describe(kind: str, error: ValidationError) -> str:
    """The first faults of a message in words, without the input that caused them."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'data'}: {fault['msg']}"
        for fault in error.errors(include_input=False, include_url=False, include_context=False)[:3]
    ]
    return f"Invalid {kind}: {'; '.join(faults)}."[:MAX_TEXT_LENGTH]


def clean_error(text: str) -> tuple[str, str]:
    """The code of OpenEnv's error frame, and the frame without the fields that echo input or name our internals."""
    data: Any = {}
    try:
        data = json.loads(text)["data"]
        code, message = str(data.get("code")), str(data.get("message"))
    except (ValueError, KeyError, AttributeError):
        code, message = "SESSION_ERROR", "The session failed."
    kept = {key: data[key] for key in ("active_sessions", "max_sessions") if isinstance(data, dict) and key in data}
    if code == "FACTORY_ERROR":
        message = "The environment could not be started; the server's log says why."
    elif code == "SESSION_ERROR":
        message = "The session failed; open a new connection."
    return code, error_frame(code, message, **kept)


def error_frame(code: str, message: str, **extra: Any) -> str:
    """An OpenEnv error frame."""
    return json.dumps({"type": "error", "data": {"message": message[:MAX_TEXT_LENGTH], "code": code, **extra}})


def error_body(code: str, message: str) -> dict[str, Any]:
    """The error shape of the project, for HTTP."""
    return {"ok": False, "code": code, "message": message, "detail": None, "request_id": uuid.uuid4().hex}
