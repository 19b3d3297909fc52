"""The unit file in examples/ starts what `manage.py up` is, and gives it the time that it may take to end."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

from django.core.management import load_command_class

from webapp.ops.up import STOP_LIMIT_S

ROOT = Path(__file__).resolve().parents[3]


def test_the_unit_starts_up_and_lets_it_end() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "examples" / "tiltyard.service")
    service = unit["Service"]
    python, script, command, *options = shlex.split(service["ExecStart"])
    assert python == f"{service['WorkingDirectory']}/.venv/bin/python" and (ROOT / script).is_file()
    found = load_command_class("webapp.ops", command).create_parser("manage.py", command).parse_args(options)
    assert (found.host, found.port, found.demo) == ("127.0.0.1", 8000, False)
    assert service["KillMode"] == "mixed", "only `up` hears the signal: it ends the others in order"
    assert int(service["TimeoutStopSec"]) > STOP_LIMIT_S and service["Restart"] == "always"
    assert service["Environment"].startswith("TILTYARD_DATA_DIR=/")
