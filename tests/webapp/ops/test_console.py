"""The address of a site, and what `manage.py up` prints to a terminal and to a file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from webapp.ops.console import Console, UpError, UpOptions, tail


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("box", "http://box:8000"),
    ],
)
def test_a_browser_on_this_machine_has_an_address(host: str, address: str, tmp_path: Path) -> None:
    assert UpOptions(tmp_path, tmp_path, host=host).address == address


@pytest.mark.parametrize(("begin", "lines"), [(0, ["two", "three"]), (8, ["three"]), (13, []), (14, ["two", "three"])])
def test_the_end_of_a_log_begins_at_this_start(begin: int, lines: list[str], tmp_path: Path) -> None:
    """A log that is shorter than that was begun again."""
    (tmp_path / "log").write_text("one\ntwo\nthree"[:13])
    assert tail(tmp_path / "log", 2, begin) == lines


def test_a_terminal_has_colours_and_a_line_that_changes() -> None:
    output = Terminal()
    console = Console(output)
    with console.stage("Web server"):
        pass
    text = output.getvalue()
    assert text.startswith("\r\x1b[2K  … Web server\r\x1b[2K") and "\x1b[32m✓\x1b[0m Web server" in text
    plain = io.StringIO()
    with Console(plain).stage("训练"):
        pass
    assert plain.getvalue().startswith("  ✓ 训练" + " " * 30) and plain.getvalue().endswith(" s\n")


def test_a_failure_to_print_ends_nothing(tmp_path: Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "full")

    Console(Full()).error(UpError("It failed.", advice="Try this.", log=tmp_path / "gone"))
