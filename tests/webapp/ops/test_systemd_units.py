"""The units of examples/systemd/: systemd accepts them, they start every program there is, and let it end."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import load_command_class

from webapp.ops.programs import TRAIN_STOP_WAIT_S, single_programs

ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "examples" / "systemd"
ANALYZE = shutil.which("systemd-analyze")
INSTANCES = ("tiltyard.target", "tiltyard-prepare.service", "tiltyard@web.service", "tiltyard-train@0.service")
MOST_EXPOSED = 4.5  # of 10, as `systemd-analyze security` counts; a unit without any hardening has 9.2


def _unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(UNITS / name)
    return found


def _options(name: str, instance: str = "") -> tuple[str, dict[str, object]]:
    """The command of ``manage.py`` and its options as it reads them."""
    service = _unit(name)["Service"]
    python, script, command, *words = shlex.split(service["ExecStart"].replace("%i", instance))
    assert python == f"{service['WorkingDirectory']}/.venv/bin/python" and (ROOT / script).is_file()
    parser = load_command_class("webapp.ops", command).create_parser("manage.py", command)
    return command, vars(parser.parse_args(words))


def _instances() -> set[str]:
    """The programs that the target starts by the template of those without a device."""
    text = (UNITS / "tiltyard.target").read_text()
    return set(re.findall(r"tiltyard@([\w-]+)\.service", text))


def test_the_target_starts_every_program_that_there_is() -> None:
    assert _instances() | {"worker-train"} == set(single_programs())
    for name in sorted(_instances()):
        command, options = _options("tiltyard@.service", name)
        assert (command, options["name"], options["host"]) == ("program", name, "127.0.0.1")
    command, options = _options("tiltyard-train@.service", "3")
    assert (command, options["name"], options["device"]) == ("program", "worker-train", "3")
    command, options = _options("tiltyard-prepare.service")
    assert (command, options["no_link"]) == ("prepare_site", True)


def test_a_training_worker_has_one_device_and_a_name_of_its_own() -> None:
    first, second = (single_programs(device=device)["worker-train"] for device in ("0", "1"))
    assert (first.env["CUDA_VISIBLE_DEVICES"], second.env["CUDA_VISIBLE_DEVICES"]) == ("0", "1")
    assert "train-0@%h" in first.argv and "train-1@%h" in second.argv and "train@%h" not in first.argv
    plain = single_programs()["worker-train"]
    assert "CUDA_VISIBLE_DEVICES" not in plain.env and "train@%h" in plain.argv
    assert "CUDA_VISIBLE_DEVICES" not in single_programs(device="0")["worker-short"].env


@pytest.mark.parametrize("name", ["tiltyard@.service", "tiltyard-train@.service"])
def test_a_program_may_take_the_time_that_it_needs_to_end(name: str) -> None:
    service = _unit(name)["Service"]
    assert int(service["TimeoutStopSec"]) > TRAIN_STOP_WAIT_S and service["Restart"] == "always"
    assert service["KillMode"] == "mixed", "the head alone is signalled: it ends its children in order"
    assert service["Environment"].startswith("TILTYARD_DATA_DIR=/var/lib/" + service["StateDirectory"])


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed here: apt install systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in UNITS.iterdir():
        text = path.read_text().replace("/opt/tiltyard/.venv/bin/python", sys.executable)
        (tmp_path / path.name).write_text(text.replace("/opt/tiltyard", str(ROOT)))
    done = _analyze("verify", *(str(tmp_path / name) for name in INSTANCES))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = tmp_path / "tiltyard@.service"
    broken.write_text(broken.read_text().replace("KillMode=mixed", "KillMod=mixed"))
    assert "KillMod" in _analyze("verify", str(tmp_path / "tiltyard@web.service")).stderr


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed here: apt install systemd")
@pytest.mark.parametrize("name", ["tiltyard@.service", "tiltyard-train@.service", "tiltyard-prepare.service"])
def test_the_units_are_hardened(name: str) -> None:
    done = _analyze("security", "--offline=yes", "--no-pager", str(UNITS / name))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None and float(found[1]) <= MOST_EXPOSED, done.stdout + done.stderr


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ANALYZE or "", *words], capture_output=True, text=True, timeout=60, check=False)
