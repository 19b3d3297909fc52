"""`manage.py up`: everything that one machine needs, started in order, watched, and ended completely.

1. Take the data folder's lock: a second `up` says so and leaves.
2. End what an `up` that was killed has left (processes.json), then look whether the port is free.
3. Start supervisord, through it PostgreSQL and Redis (unless DATABASE_URL and REDIS_URL name others).
4. Write services.json, from which every Django process reads its addresses; migrate; make the first user and team.
5. Start the web server and wait until it answers; then all others, until each is ready.
6. Watch. Each look notes all processes by pid and start time, for 2. of the next start.
7. On Ctrl-C, SIGTERM or an error: supervisord stops the groups in order, then the noted processes that still live are
   ended.

This process never opens the database: its own settings were read before services.json was written.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from django.utils.translation import gettext as _

from training.addresses import parse_place
from training.children import PLACES, child_env
from training.errors import EnvironmentProtocolError, TiltyardError
from webapp.common import host
from webapp.common.env import env_str
from webapp.common.outbound import fetch
from webapp.common.static_files import collected, note_collected
from webapp.ops.catalogues import catalogues_compile
from webapp.ops.console import LOCK_NAME, Console, UpError, UpOptions
from webapp.ops.programs import (
    TRAIN_STOP_WAIT_S,
    Manager,
    Program,
    celery_programs,
    clock_program,
    gpus,
    keeper_program,
    service_program,
    tools_program,
    web_program,
    work_names,
)

# The surroundings of `up`: its port, the tools server, an old Redis, a disk that fails.

TOOLS_PORT = 8101
REDIS_S = 5.0


def check_port(options: UpOptions) -> None:
    """Refuse a port that is taken, and name one that is free."""
    family_of = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family_of) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise UpError(
                    _("Cannot listen on %(host)s, port %(port)d: %(reason)s.")
                    % {"host": options.host, "port": options.port, "reason": exc.strerror}
                ) from exc
            raise UpError(
                _("Port %(port)d is in use by another program.") % {"port": options.port},
                advice=_("Choose another one: python manage.py up --port %(port)d")
                % {"port": host.free_port(options.port + 1)},
            ) from exc


def tools_port_of(data: Path) -> tuple[int, int]:
    """The tools server keeps its port, because registered environments name it; else (new port, old port)."""
    file = data / "tools.port"
    before = int(file.read_text()) if file.exists() else TOOLS_PORT
    port = host.free_port(before)
    host.write_private(file, str(port))
    return port, before


def tools_token_file(data: Path) -> Path:
    """The file with the token of the tools server; it has one because any program of this machine can reach its
    port."""
    file = data / "tools.token"
    if not file.exists():
        host.write_private(file, secrets.token_urlsafe(32))
    return file


def old_redis(binary: str) -> list[str]:
    """A warning about a Redis server whose release line gets no fixes any more; empty for a newer one."""
    version = host.redis_version(binary)
    if version >= host.REDIS_SUPPORTED:
        return []
    shown = ".".join(map(str, version)) or "?"
    return [
        _("Redis %(version)s gets no security fixes any more. Only this machine reaches it, with a password.")
        % {"version": shown},
        _("Put redis-server 7 or newer on the PATH: the next start uses it."),
    ]


def disk_error(exc: OSError, data: Path) -> UpError:
    """The error for a disk that is full or cannot be written: a sentence instead of a traceback."""
    place = exc.filename or data
    if exc.errno == errno.ENOSPC:
        return UpError(
            _("The disk that holds %(path)s is full.") % {"path": place},
            advice=_("Free some space, then start again. Your data are kept."),
        )
    return UpError(_("%(path)s cannot be used: %(reason)s.") % {"path": place, "reason": exc.strerror or exc})


# Checks whether a started program is ready, or at least makes progress.


class Progress:
    """Whether a program that does not answer yet makes progress: its processor time grows, however slowly.

    On a machine that is busy with something else a start takes minutes, which is not a fault.
    """

    def __init__(self, limit_s: float, say_after_s: float) -> None:
        self._limit_s, self._spent_s = limit_s, 0.0
        self._moved_at = time.monotonic()
        self._say_at = self._moved_at + say_after_s

    def stopped(self, spent_s: float) -> bool:
        """Given its processor time: whether that has not grown for the limit."""
        if spent_s > self._spent_s:
            self._spent_s, self._moved_at = spent_s, time.monotonic()
        return time.monotonic() - self._moved_at > self._limit_s

    def slow(self) -> bool:
        """True once, when it has taken so long that a person should get a note."""
        due = time.monotonic() >= self._say_at
        if due:
            self._say_at = float("inf")
        return due


def within(seconds: float, check: Callable[[], bool]) -> bool:
    """Whether a condition becomes true within the time: checked ten times a second."""
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its children so far; 0 where it cannot be asked."""
    with suppress(psutil.Error, ValueError):
        head = psutil.Process(pid)
        times = [one.cpu_times() for one in (head, *head.children(recursive=True))]
        return float(sum(each.user + each.system for each in times))
    return 0.0


def answers(url: str) -> bool:
    """Whether anything answers there, also with a redirect or a refusal."""
    place = parse_place(url)
    try:  # an HTTP client takes processor time of its own, which the starting program needs
        socket.create_connection((place.host, place.port), timeout=5).close()
    except OSError:
        return False
    try:
        fetch(url, ours=frozenset({(place.host, place.port)}), total_s=5)
    except EnvironmentProtocolError:
        return True
    except TiltyardError:
        return False
    return True


READY_LIMIT_S = 120.0  # without any processor time
SAY_AFTER_S = 30.0
LOOK_EVERY_S = 1.0  # whether a program still lives and makes progress; this check takes processor time
WATCH_EVERY_S = 2.0
STOP_LIMIT_S = TRAIN_STOP_WAIT_S + 50.0  # the groups' own limits, one after another
END_GRACE_S = 3.0


class Stopped(BaseException):
    """Ctrl-C or SIGTERM."""


class Up:
    """One running Tiltyard."""

    def __init__(self, options: UpOptions, console: Console) -> None:
        self.options, self.console, self.data = options, console, options.data
        self.ledger = host.Ledger(self.data / "processes.json")
        self._manager: Manager | None = None
        self.known: set[host.Known] = set()
        self.services: dict[str, host.Service] = {}
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._pids: dict[str, int] = {}
        self._stopping = self._hurry = False
        self._noted = True
        self._log_sizes: dict[str, int] = {}

    @property
    def manager(self) -> Manager:
        """The process manager; only asked for once it was made."""
        if self._manager is None:
            raise UpError("The process manager was not started.")
        return self._manager

    # --- 1, 2: alone on this folder, nothing left over, port free ---
    def run(self) -> int:
        """Run until stopped; the exit code."""
        self._install_signal_handlers()
        try:
            with self._lock():
                try:
                    self._start()
                    self._watch()
                finally:
                    self._stop()
        except (UpError, host.EmbeddedError) as error:
            self.console.error(error if isinstance(error, UpError) else UpError(str(error)))
            return 1
        except OSError as exc:
            self.console.error(disk_error(exc, self.data))
            return 1
        except Stopped:
            pass  # stopped as asked
        return 0

    @contextmanager
    def _lock(self) -> Iterator[None]:
        handle = os.open(self.data / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(handle, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                place = file.read().strip() or _("an address it has not reported yet")
                raise UpError(
                    _("Tiltyard already runs on this data folder, at %(place)s.") % {"place": place},
                    advice=_("Stop it first, or set TILTYARD_DATA_DIR to another folder for a second one."),
                ) from None
            file.truncate(0)
            file.write(f"{self.options.address} ({_('process')} {os.getpid()})")
            file.flush()
            yield

    def _end_leftovers(self) -> None:
        """End what is left of an `up` that was killed: first its supervisord in order, then the rest."""
        left = host.alive(self.ledger.read())
        if not left:
            self.ledger.clear()
            return
        with self.console.stage(_("Ending %(count)d left-over processes") % {"count": len(left)}):
            self._end_all(left)
            self.ledger.clear()

    def _end_all(self, processes: list[host.Known]) -> None:
        """supervisord knows the right order, so it goes first; what it leaves is ended after it."""
        heads = [one for one in processes if one.name.startswith("supervisord") or self._is_manager(one)]
        for one in heads:
            with suppress(OSError):
                os.kill(one.pid, signal.SIGTERM)
        host.wait_gone(heads, STOP_LIMIT_S, give_up=lambda: self._hurry)
        stuck = host.end(processes, grace_s=END_GRACE_S)
        if stuck:
            raise UpError(_("These processes cannot be ended: %(pids)s.") % {"pids": [one.pid for one in stuck]})

    def _is_manager(self, one: host.Known) -> bool:
        """Whether the pid file names this process; ``Known`` has already compared the start time."""
        try:
            return int((self.data / "supervisord.pid").read_text()) == one.pid
        except (OSError, ValueError):
            return False

    # --- 3: services ---
    def _start(self) -> None:
        catalogues_compile(self.options.root / "locale")
        os.umask(0o077)
        self._end_leftovers()
        check_port(self.options)
        ready = self._make_folders()
        tools_port, tools_before = tools_port_of(self.data)
        with self.console.stage(_("Data folder")):
            programs = self._prepare_services()
        tools = tools_program(tools_port, tools_token_file(self.data))
        web = web_program(self.options.host, self.options.port, behind_proxy=self.options.behind_proxy)
        workers = [keeper_program(ready), clock_program(ready), *celery_programs(ready, gpus())]
        self._manager = Manager(self.data, self.options.root, [*programs.values(), tools, web, *workers])
        logs = {name: self.manager.log_of(program) for name, program in self.manager.programs.items()}
        self._log_sizes = {name: log.stat().st_size for name, log in logs.items() if log.exists()}
        self.manager.start(self._base_environment(*(program.names for program in self.manager.programs.values())))
        self._note_processes()
        self.manager.run(*programs.values())
        self._wait_services(programs)
        self._write_services(tools_port)
        self._collect_static()
        with self.console.stage(_("Database up to date")):
            link = self._prepare_site(tools_port, tools_before)
        self.manager.run(web)  # alone: a person waits for the first page, but not for a worker
        self._wait_for(_("Web server"), web, lambda: answers(self.options.address))
        self.manager.run(tools, *workers)
        self._wait_for(_("Tools environment"), tools, lambda: answers(f"http://127.0.0.1:{tools_port}/health"))
        titles = {
            "worker-endpoint": _("Worker for endpoints"),
            "worker-short": _("Worker for short work"),
            "worker-long": _("Worker for long work"),
            "clock": _("Clockwork"),
            "keeper": _("Keeper of environments"),
        }
        for program in workers:
            title = titles.get(program.name, _("Training worker"))
            self._wait_for(title, program, (ready / program.name).exists)
        self._note_processes()
        self._welcome(link)

    def _make_folders(self) -> Path:
        """Private folders below the data folder, which others may pass through (not list) when we are root."""
        self.data.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for name in ("logs", "runs", "datasets", "static", "ready"):
            (self.data / name).mkdir(mode=0o700, exist_ok=True)
        ready = self.data / "ready"
        for file in ready.iterdir():
            file.unlink()
        return ready

    def _prepare_services(self) -> dict[str, Program]:
        """PostgreSQL and Redis, each unless the environment names another."""
        if not env_str("DATABASE_URL"):
            self.services["database_url"] = host.postgres_prepare(self.data / "postgres")
        if not env_str("REDIS_URL"):
            self.services["redis_url"] = host.redis_prepare(self.data / "redis")
        else:
            from webapp.common.broker import redis_problem  # no other start needs redis

            if problem := redis_problem(env_str("REDIS_URL"), REDIS_S):  # runs wait in the database until it answers
                self.console.line(f"  {problem}")
        return {key: service_program(service) for key, service in self.services.items()}

    def _wait_services(self, programs: dict[str, Program]) -> None:
        waits = {"database_url": ("PostgreSQL", host.postgres_wait), "redis_url": ("Redis", host.redis_wait)}
        for key, program in programs.items():
            title, wait = waits[key]
            with self.console.stage(title):
                try:
                    wait(self.services[key], alive=self._survival_check(program))
                except host.EmbeddedError as exc:
                    raise UpError(str(exc), log=self.manager.log_of(program)) from exc

    def _base_environment(self, *names: Iterable[str]) -> dict[str, str]:
        own = {
            "TILTYARD_DATA_DIR": str(self.data),
            "TILTYARD_PORT": str(self.options.port),
            "TILTYARD_STATIC_ROOT": str(self.data / "static"),
            "TILTYARD_STATIC_FINDERS": "false",
            "PYTHONUNBUFFERED": "1",
        }
        return child_env(PLACES, *names, **own)

    def _survival_check(self, program: Program) -> Callable[[], bool]:
        """A question "is it still the process that was started?" answered with no after a crash or restart."""
        pids: set[int] = set()

        def survives() -> bool:
            entry = self.manager.states().get(program.full_name, {})
            pids.add(entry.get("pid") or -1)
            return entry.get("statename") in {"STARTING", "RUNNING"} and len(pids) == 1

        return survives

    # --- 4: addresses, schema, first user ---
    def _write_services(self, tools_port: int) -> None:
        found = {key: service.url for key, service in self.services.items()}
        for key in ("database_url", "redis_url"):
            found.setdefault(key, os.environ.get(key.upper(), ""))
        found |= {"tools_url": f"http://127.0.0.1:{tools_port}", "tools_address": f"127.0.0.1:{tools_port}"}
        found["tools_token"] = tools_token_file(self.data).read_text().strip()
        host.write_private(self.data / "services.json", json.dumps(found))

    def _run_manage(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "manage.py", *arguments]
        helper = subprocess.Popen(
            argv,
            cwd=self.options.root,
            env=self._base_environment(work_names()) | {"TILTYARD_LOG_LEVEL": "WARNING"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=host.die_with_parent,
            **options,
        )
        self._helpers.append(helper)
        return helper

    def _collect_static(self) -> None:
        """Compressed scripts and styles under hashed names; again only when a file changed."""
        source, target = self.options.root / "static", self.data / "static"
        if not collected(source, target):
            log = self.data / "logs" / "static.log"
            with self.console.stage(_("Scripts and styles")), log.open("wb") as output:
                child = self._run_manage("collectstatic", "--noinput", "--clear", stdout=output, stderr=output)
                if child.wait():
                    raise UpError(_("The scripts and styles of the pages could not be prepared."), log=log)
                note_collected(source, target)

    def _prepare_site(self, port: int, before: int) -> str:
        """Migrate and make the first user in a process that reads the new services.json; path of a login link."""
        log = self.data / "logs" / "prepare.log"
        arguments = ["prepare_site", *(["--demo"] if self.options.demo else [])]
        if port != before:
            arguments += ["--tools-moved", f"http://127.0.0.1:{before}", f"http://127.0.0.1:{port}"]
        with log.open("wb") as errors:
            child = self._run_manage(*arguments, stdout=subprocess.PIPE, stderr=errors)
            output, _none = child.communicate()  # without a limit: large tables take their time
        if child.returncode:
            raise UpError(_("The database could not be brought up to date."), log=log)
        return str(json.loads(output.splitlines()[-1])["login_path"])

    # --- 5: ready ---
    def _wait_for(self, title: str, program: Program, check: Callable[[], bool]) -> None:
        survives, progress = self._survival_check(program), Progress(READY_LIMIT_S, SAY_AFTER_S)
        log, log_from = self.manager.log_of(program), self._log_sizes.get(program.full_name, 0)
        with self.console.stage(title):
            while not within(LOOK_EVERY_S, check):
                self._check_stopped()
                if not survives():
                    raise UpError(
                        _("%(name)s ended while starting.") % {"name": program.name}, log=log, log_from=log_from
                    )
                if progress.stopped(processor_seconds(self.manager.pid_of(program))):
                    text = _("%(name)s does not answer.") % {"name": program.name}
                    raise UpError(text, log=log, log_from=log_from)
                if progress.slow():
                    text = _("  %(name)s is still starting: the machine is busy.")
                    self.console.line(text % {"name": program.name})

    def _welcome(self, link: str) -> None:
        line = self.console.line
        line()
        line(f"  {self.console.paint('1', _('Open'))}  {self.options.address}{link}")
        line(f"        {_('This link logs you in once, within 24 hours. Another: python manage.py login_link')}")
        if self.options.host not in host.LOOPBACK:
            line(f"        {_('Others on the network can reach this address: see SECURITY.md.')}")
        if "redis_url" in self.services:
            for text in old_redis(self.services["redis_url"].argv[0]):
                line(f"  {text}")
        line(f"  {_('Ctrl-C ends everything; your data stay in %(path)s') % {'path': self.data}}")
        line()

    # --- 6: watch ---
    def _note_processes(self) -> None:
        """Remember all processes, those whose parent has gone too."""
        if self._manager is not None and self._manager.child is not None:
            self.known = set(host.alive(self.known)) | host.family(self._manager.child.pid)
            try:
                if self.ledger.write(self.known):
                    self._noted = True
            except OSError as exc:  # a full or failing disk ends nothing: the older note stays until there is room
                if self._noted:
                    self.console.line(
                        _("  %(problem)s Running processes continue.") % {"problem": disk_error(exc, self.data)}
                    )
                self._noted = False

    def _watch(self) -> None:
        if self.options.demo:
            self._run_manage("demo", "--follow")
        while self.manager.alive:
            self._check_stopped()
            self._note_processes()
            self._print_restarts(self.manager)
            time.sleep(WATCH_EVERY_S)
        raise UpError(
            _("The process manager ended by itself; everything else is being ended."),
            advice=_("Start again: python manage.py up"),
            log=self.data / "logs" / "supervisord.log",
        )

    def _print_restarts(self, manager: Manager) -> None:
        for name, entry in manager.states().items():
            pid = entry.get("pid") or 0
            before = self._pids.get(name)
            if pid and before and pid != before:
                log = manager.log_of(manager.programs[name])
                self.console.line(
                    _("  %(name)s had ended and was started again; its log: %(log)s")
                    % {"name": entry["name"], "log": log}
                )
            if pid:
                self._pids[name] = pid

    # --- 7: stop ---
    def _install_signal_handlers(self) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            if self._stopping:
                self._hurry = True
                return
            self._stopping = True
            raise Stopped

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)

    def _check_stopped(self) -> None:
        """A signal that comes while Python frees an object is lost: what its handler raises is printed and ignored."""
        if self._stopping:
            raise Stopped

    def _stop(self) -> None:
        self._stopping = True
        for helper in self._helpers:
            if helper.poll() is None:
                helper.terminate()
                helper.wait(timeout=10)
        if self._manager is None:
            return
        if self.console.tty:
            self.console.update("")
        with self.console.stage(_("Ending everything")):
            self._note_processes()
            self._end_all(sorted(self.known, key=lambda one: one.pid))
        if self.manager.child is not None:
            self.manager.child.wait(timeout=5)
        (self.data / "services.json").unlink(missing_ok=True)
        self.ledger.clear()
