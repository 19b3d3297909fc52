"""Why something could not be read or stored, in our words in place of Python's and the operating system's.

Their own texts are English, change between versions, and name what a person never wrote ("[Errno 28] …").
"""

from __future__ import annotations

import csv
import errno
import json
import re
import socket

import yaml

from training.words import Sentence, _, sentence

_NUMBER = re.compile(r"\[Errno (\d+)\]")
_JSON = {
    "Expecting value": _("a value is missing, misspelt or without quotes"),
    "Expecting ',' delimiter": _("a comma is missing"),
    "Expecting ':' delimiter": _("a colon is missing after a name"),
    "Expecting property name enclosed in double quotes": _("a name in double quotes is missing"),
    "Extra data": _("more text follows after the end of the value"),
    "Illegal trailing comma before end of object": _("there is a comma before a closing brace"),
    "Illegal trailing comma before end of array": _("there is a comma before a closing bracket"),
    "Invalid control character at": _("a text holds a line end or another control character"),
    "Invalid \\escape": _("a backslash does not begin an escape that JSON knows"),
    "Invalid \\uXXXX escape": _("a \\u is not followed by four hexadecimal digits"),
    "Unterminated string starting at": _("a text has no closing quote"),
}
_OS = {
    errno.ENOSPC: _("the disk is full"),
    errno.EDQUOT: _("the disk quota is used up"),
    errno.EROFS: _("the disk is read-only"),
    errno.EACCES: _("Tiltyard may not read or write it"),
    errno.EPERM: _("Tiltyard may not read or write it"),
    errno.ENOENT: _("it does not exist"),
    errno.ENOTDIR: _("a part of its path is no folder"),
    errno.EISDIR: _("it is a folder"),
    errno.ELOOP: _("it is a link"),
    errno.ENAMETOOLONG: _("its name is too long"),
    errno.EMFILE: _("too many files are open"),
    errno.ENFILE: _("too many files are open"),
    errno.ENOMEM: _("the machine has too little memory"),
    errno.EIO: _("the disk failed to read or write"),
    errno.ECONNREFUSED: _("nothing listens at this address"),
    errno.ECONNRESET: _("the other side broke the connection"),
    errno.EPIPE: _("the other side broke the connection"),
    errno.ETIMEDOUT: _("no answer came in time"),
    errno.EHOSTUNREACH: _("there is no route to this address"),
    errno.ENETUNREACH: _("there is no route to this address"),
}
_YAML = (
    ("mapping values are not allowed", _("there is a colon where no value can begin")),
    ("could not find expected ':'", _("a colon is missing after a name")),
    ("did not find expected key", _("the indentation does not fit the lines above")),
    ("expected <block end>", _("the indentation does not fit the lines above")),
    ("expected ',' or", _("a list or mapping in brackets is not closed, or a comma is missing")),
    ("character '\\t'", _("there is a tab in the indentation; use spaces")),
    ("cannot start any token", _("a character is not allowed here; put the text in quotes")),
    ("found unexpected end of stream", _("a text has no closing quote")),
    ("special characters are not allowed", _("it holds a control character")),
    ("unacceptable character", _("it holds a control character")),
    ("aliases (*name) are not allowed", _("aliases (*name) are not allowed")),
    ("it is nested too deeply", _("it is nested too deeply or holds an impossible value")),
    ("found another document", _("it holds more than one document")),
    ("unknown escape character", _("a backslash does not begin an escape that YAML knows")),
    ("could not determine a constructor", _("tags (!name) are not allowed")),
    ("unhashable key", _("a name is a list or a mapping")),
)
_CSV = (
    ("expected after", _("text follows a closing quote without a delimiter")),
    ("unexpected end of data", _("a quoted text has no closing quote")),
    ("field larger than", _("a cell is too long")),
    ("new-line character", _("a cell without quotes contains a line end")),
)


def json_reason(error: json.JSONDecodeError) -> Sentence:
    """What is wrong with a JSON text, without the place."""
    return sentence(_JSON.get(error.msg, _("it breaks the rules of JSON")))


def os_reason(error: OSError) -> Sentence:
    """Why the operating system refused; an errno that is none of the usual ones is named by its symbol."""
    if isinstance(error, socket.gaierror):
        return sentence(_("the host name is not known"))
    number = error.errno or 0
    if not number and (several := _NUMBER.search(str(error))):  # asyncio tried more than one address
        number = int(several[1])
    if number in _OS:
        return sentence(_OS[number])
    if not number:
        return sentence(_("reading or writing failed"))
    return sentence(_("the system reports {code}"), code=errno.errorcode.get(number, type(error).__name__))


def yaml_reason(error: yaml.YAMLError) -> Sentence:
    """What is wrong with a YAML text, without the place."""
    return sentence(_first(_YAML, getattr(error, "problem", None) or str(error)) or _("it breaks the rules of YAML"))


def csv_reason(error: Exception) -> Sentence:
    """What is wrong with a line of CSV."""
    if isinstance(error, csv.Error):
        return sentence(_first(_CSV, str(error)) or _("it breaks the rules of CSV"))
    return sentence(_("the file is empty"))


def _first(table: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((words for part, words in table if part in text), None)
