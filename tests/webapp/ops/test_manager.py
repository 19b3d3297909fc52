"""What is written for the process manager, and what is printed."""

from __future__ import annotations

import configparser
import io
import signal
import xmlrpc.client
from pathlib import Path

import pytest

from training.children import PLACES, child_env
from webapp.common.host import Service
from webapp.ops.console import Console, UpError, display_width, tail
from webapp.ops.programs import (
    Manager,
    Program,
    celery_programs,
    clock_program,
    gpus,
    keeper_program,
    service_program,
    single_programs,
    tools_program,
    web_program,
)


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


def test_services_are_first_and_an_app_is_stopped_first(tmp_path: Path) -> None:
    """A service runs as its own user, away from our folder, and leaves by its own orders."""
    service = service_program(Service("postgres", ["/bin/pg"], "", tmp_path, user="pg", stop_signal=signal.SIGINT))
    web, keeper = web_program("127.0.0.1", 1, behind_proxy=False), keeper_program(tmp_path)
    tools = tools_program(2, tmp_path / "token")
    configuration = written(Manager(tmp_path, tmp_path, [keeper, service, web, tools]))
    groups = {name: configuration[f"group:{name}"] for name in ("services", "tools", "app")}
    assert [(group["programs"], group["priority"]) for group in groups.values()] == [
        ("postgres", "10"), ("tools", "20"), ("keeper,web", "30"),
    ]  # fmt: skip
    section = configuration["program:postgres"]
    assert (section["user"], section["directory"], section["stopsignal"]) == ("pg", "/", "INT")
    assert (section["stopasgroup"], section["stopwaitsecs"]) == ("false", "30")
    assert "user" not in configuration["program:web"] and configuration["program:web"]["directory"] == str(tmp_path)
    assert "group:services" not in written(Manager(tmp_path, tmp_path, [web]))


def test_a_program_gets_its_own_variables_and_no_others() -> None:
    program = Program("x", "app", ["/bin/x"], names=("MINE",), env={"SET": "1"})
    kept = [*PLACES[:1], "MINE", "SET"]
    assert program.command(kept) == ["/bin/x"]
    assert program.command(["Z", *kept, "A", "A"])[1:] == ["-u", "A", "-u", "Z", "/bin/x"]


def test_who_may_reach_the_hub_and_who_may_start_containers(tmp_path: Path) -> None:
    programs = [web_program("127.0.0.1", 1, behind_proxy=False), keeper_program(tmp_path), clock_program(tmp_path)]
    programs += celery_programs(tmp_path, [])
    with_token = [program.name for program in programs if "HF_TOKEN" in program.names]
    with_docker = [program.name for program in programs if "DOCKER_HOST" in program.names]
    assert (with_token, with_docker) == (["worker-train", "worker-endpoint"], ["keeper"])
    assert not tools_program(1, tmp_path).names


def test_one_program_of_a_container_lives_with_its_own_device() -> None:
    one, named = single_programs(), single_programs(device="3")
    assert set(one) == set(named) == {
        "web", "keeper", "clock", "worker-train", "worker-endpoint", "worker-short", "worker-long",
    }  # fmt: skip
    assert "train@%h" in one["worker-train"].argv and "CUDA_VISIBLE_DEVICES" not in one["worker-train"].env
    assert "train-3@%h" in named["worker-train"].argv and named["worker-train"].env["CUDA_VISIBLE_DEVICES"] == "3"
    assert one["worker-short"] == named["worker-short"]


def test_what_the_process_manager_refuses_is_an_error_unless_it_runs_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program("x", "app", ["/bin/x"])
    manager = Manager(tmp_path, tmp_path, [program])
    assert manager.states() == {} and manager.pid_of(program) == 0 and not manager.alive, "it was not started"
    answers = iter([xmlrpc.client.Fault(60, "ALREADY_STARTED: app:x"), xmlrpc.client.Fault(50, "SPAWN_ERROR: app:x")])

    def call(method: str, *_arguments: object) -> object:
        if method == "startProcess":
            raise next(answers)
        return [{"group": "app", "name": "x", "pid": 7}, {"group": "app", "name": "y", "pid": 8}]

    monkeypatch.setattr(manager, "_call", call)
    manager.run(program)
    with pytest.raises(UpError, match="x: SPAWN_ERROR") as refused:
        manager.run(program)
    assert refused.value.log == tmp_path / "logs" / "x.log" and manager.pid_of(program) == 7


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
        "--limit-concurrency 1000",
        "--timeout-graceful-shutdown 3",
        "--no-server-header",
    ):
        assert option in argv
    assert "--forwarded-allow-ips" not in argv
    behind = " ".join(web_program("127.0.0.1", 8000, behind_proxy=True).argv)
    assert "--proxy-headers --forwarded-allow-ips 127.0.0.1,::1" in behind


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
