"""What is written for the process manager, and what is printed."""

from __future__ import annotations

import configparser
import io
import signal
from pathlib import Path

import pytest

from training.children import PLACES, child_env
from webapp.ops.console import Console, UpError, display_width, tail
from webapp.ops.programs import Manager, Program, celery_programs, gpus, web_program


def written(manager: Manager) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.read_string(manager._configuration())
    return parser


def test_every_program_is_restarted_and_killed_as_a_group(tmp_path: Path) -> None:
    programs = [web_program("127.0.0.1", 8000, behind_proxy=False), *celery_programs(tmp_path, [])]
    configuration = written(Manager(tmp_path, tmp_path, programs))
    for program in programs:
        section = configuration[f"program:{program.name}"]
        assert (section["autorestart"], section["killasgroup"], section["redirect_stderr"]) == ("true", "true", "true")
        assert section["stdout_logfile_maxbytes"] == "10MB"
        assert section["stopasgroup"] == str(program.name == "web").lower()
    assert configuration["unix_http_server"]["chmod"] == "0700"
    assert "-c 1" in configuration["program:worker-train"]["command"]
    assert "-n train@%%h" in configuration["program:worker-train"]["command"]
    asking = configuration["program:worker-endpoint"]
    assert "-Q endpoint -c 2 -n endpoint@%%h" in asking["command"] and asking["stopwaitsecs"] == "330"
    assert 'CUDA_VISIBLE_DEVICES=""' in asking["environment"], "its runs have no device"


def test_odd_paths_and_signals_survive(tmp_path: Path) -> None:
    folder = tmp_path / "a b%c"
    program = Program("x", "app", ["/bin/echo", "two words", "100%"], stop_signal=signal.SIGINT)
    section = written(Manager(folder, folder, [program]))["program:x"]
    assert section["command"] == "/bin/echo 'two words' 100%%"
    assert section["directory"] == str(folder).replace("%", "%%")
    assert section["stopsignal"] == "INT"


def test_a_long_data_path_is_spoken_to_over_loopback(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    configuration = written(Manager(folder, folder, []))
    assert configuration["inet_http_server"]["port"].startswith("127.0.0.1:")
    assert len(configuration["inet_http_server"]["password"]) >= 32


def test_the_web_server_has_the_limits_of_the_settings_sheet() -> None:
    argv = " ".join(web_program("127.0.0.1", 8000, behind_proxy=False).argv)
    for option in (
        "--ws-max-size 65536",
        "--ws-ping-interval 20",
        "--ws-ping-timeout 20",
        "--no-access-log",
        "--ws-per-message-deflate false",
        "--no-proxy-headers",
    ):
        assert option in argv
    assert "--proxy-headers" in web_program("127.0.0.1", 8000, behind_proxy=True).argv


def test_the_web_server_shares_memory_between_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    web = web_program("127.0.0.1", 8000, behind_proxy=False)
    assert web.environment()["MALLOC_ARENA_MAX"] == "2"
    assert "MALLOC_ARENA_MAX" not in child_env(PLACES), "what it starts for people does not inherit that"


@pytest.mark.parametrize(("visible", "found"), [("", []), ("-1", []), ("0", ["0"]), ("0, 2", ["0", "2"])])
def test_visible_devices_are_found(monkeypatch: pytest.MonkeyPatch, visible: str, found: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == found


def test_the_driver_is_asked_for_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: H100 (UUID: a)'\necho 'GPU 1: H100 (UUID: b)'\n")
    tool.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == ["0", "1"]


def test_each_device_has_a_training_worker_that_sees_it_alone(tmp_path: Path) -> None:
    workers = [program for program in celery_programs(tmp_path, ["0", "2"]) if "train" in program.name]
    assert [program.name for program in workers] == ["worker-train-0", "worker-train-2"]
    assert [program.env["CUDA_VISIBLE_DEVICES"] for program in workers] == ["0", "2"]
    assert len({argv for program in workers for argv in program.argv if "@" in argv}) == 2
    assert "CUDA_VISIBLE_DEVICES" not in celery_programs(tmp_path, ["0"])[0].env


def test_an_error_shows_the_end_of_its_log_and_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_text("\n".join(f"line {n}" for n in range(100)))
    output = io.StringIO()
    console = Console(output)
    with pytest.raises(UpError) as caught, console.stage("Web server"):
        raise UpError("web ended while starting.", advice="Try this.", log=log)
    console.error(caught.value)
    text = output.getvalue()
    assert "✗ Web server" in text
    assert text.index("web ended") < text.index("line 99") < text.index("Try this.")
    assert "line 84\n" not in text
    assert "\x1b" not in text


def test_columns_of_chinese_text() -> None:
    assert display_width("训练 ok") == 7


def test_tail_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 100_000 + "\nlast\n")
    assert tail(path, 1) == ["last"]
