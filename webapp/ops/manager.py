"""supervisord as a child: it starts our programs, starts a crashed one again, and ends all of them.

docs/adr/0001-process-manager.md says why supervisord. It runs in the foreground, in a session of its own (so that
Ctrl-C reaches `up` only), and the kernel ends it with us. Requests go over a unix socket with a password.
"""

from __future__ import annotations

import http.client
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from webapp.common.host import SOCKET_PATH_LIMIT, die_with_parent, free_port, write_private
from webapp.ops.console import UpError
from webapp.ops.programs import PRIORITY, Program

USER = "tiltyard"
LOG_BYTES, LOG_BACKUPS = "10MB", 3
START_TRIES = 1000  # default 3 would give a program up for good after a bad minute; tries are seconds apart
ANSWER_LIMIT_S = 20.0
OUTPUT_BYTES = 1_000_000  # of what supervisord prints besides its log


def _escape_percent(text: str) -> str:
    """Text as supervisord reads it back: ``%`` starts an expansion, so it is doubled."""
    return text.replace("%", "%%")


def _program_section(program: Program, root: Path, logs: Path, given: Iterable[str]) -> list[str]:
    lines = [
        f"[program:{program.name}]",
        f"command={_escape_percent(shlex.join(program.command(given)))}",
        f"directory={_escape_percent(str('/' if program.user else root))}",
        f"stdout_logfile={_escape_percent(str(logs / program.name))}.log",
        f"stdout_logfile_maxbytes={LOG_BYTES}",
        f"stdout_logfile_backups={LOG_BACKUPS}",
        f"stopsignal={program.stop_signal.name.removeprefix('SIG')}",
        f"stopwaitsecs={program.stop_wait_s}",
        f"stopasgroup={str(program.stop_as_group).lower()}",
        "redirect_stderr=true",
        "autostart=false",
        "autorestart=true",
        f"startretries={START_TRIES}",
        "startsecs=1",
        "killasgroup=true",
    ]
    if program.user:
        lines.append(f"user={program.user}")
    if program.env:
        pairs = ",".join(f'{name}="{value}"' for name, value in program.env.items())
        lines.append(f"environment={_escape_percent(pairs)}")
    return lines


class Manager:
    """Writes the configuration, runs supervisord, and asks it."""

    def __init__(self, data: Path, root: Path, programs: Iterable[Program]) -> None:
        self.data, self.root, self.logs = data, root, data / "logs"
        self.programs = {program.full_name: program for program in programs}
        self._password = secrets.token_urlsafe(24)
        socket_path = data / "supervisor.sock"
        long_path = len(str(socket_path)) + 10 > SOCKET_PATH_LIMIT  # it binds to <path>.<pid> first
        self._address = f"http://127.0.0.1:{free_port()}" if long_path else f"unix://{socket_path}"
        self.child: subprocess.Popen[bytes] | None = None

    # --- configuration ---
    def _configuration(self, given: Iterable[str] = ()) -> str:
        login = [f"username={USER}", f"password={self._password}"]
        if self._address.startswith("unix"):
            server = [
                "[unix_http_server]",
                f"file={_escape_percent(self._address.removeprefix('unix://'))}",
                "chmod=0700",
            ]
        else:
            server = ["[inet_http_server]", f"port={self._address.removeprefix('http://')}"]
        head = [
            "[supervisord]",
            "nodaemon=true",
            "silent=true",
            "umask=077",
            "logfile_maxbytes=5MB",
            "logfile_backups=1",
            f"logfile={_escape_percent(str(self.logs))}/supervisord.log",
            f"pidfile={_escape_percent(str(self.data))}/supervisord.pid",
            *(["user=root"] if os.geteuid() == 0 else []),
            "[rpcinterface:supervisor]",
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        ]
        sections = [*server, *login, *head]
        for program in self.programs.values():
            sections += _program_section(program, self.root, self.logs, given)
        for group, priority in PRIORITY.items():
            names = ",".join(program.name for program in self.programs.values() if program.group == group)
            if names:
                sections += [f"[group:{group}]", f"programs={names}", f"priority={priority}"]
        return "\n".join(sections) + "\n"

    # --- life ---
    def start(self, env: dict[str, str]) -> None:
        """Start supervisord with all variables of its programs, since it passes its own on; no program runs yet."""
        self.logs.mkdir(mode=0o700, exist_ok=True)
        configuration = self.data / "supervisord.conf"
        write_private(configuration, self._configuration(env))
        self.child = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(configuration)],
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        output = cast(IO[bytes], self.child.stdout)
        threading.Thread(target=self._keep_output, args=(output,), name="supervisord.out", daemon=True).start()
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            with suppress(OSError, http.client.HTTPException, xmlrpc.client.Error):
                self._call("getState")
                return
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise UpError("The process manager did not start.", log=self.logs / "supervisord.out")
            time.sleep(0.05)

    def _keep_output(self, output: IO[bytes]) -> None:
        """Write what supervisord prints into a file. By a pipe: it prints what it cannot log, and where it could not
        print either, as to a file on a full disk, it would close the channel of the program that it logs."""
        path, left = self.logs / "supervisord.out", OUTPUT_BYTES
        with suppress(OSError):
            path.write_bytes(b"")
        for line in output:
            left -= len(line)
            if left >= 0:
                with suppress(OSError), path.open("ab") as file:
                    file.write(line)

    @property
    def alive(self) -> bool:
        """Whether supervisord runs."""
        return self.child is not None and self.child.poll() is None

    def _call(self, method: str, *arguments: Any) -> Any:
        """One call on a connection of its own: a kept one is closed by the server when it idles."""
        from supervisor.xmlrpc import SupervisorTransport

        transport = SupervisorTransport(USER, self._password, self._address)
        try:
            proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
            return getattr(proxy.supervisor, method)(*arguments)
        finally:
            transport.close()

    def run(self, *programs: Program) -> None:
        """Start programs without waiting for them; one that runs already stays."""
        for program in programs:
            try:
                self._call("startProcess", program.full_name, False)
            except xmlrpc.client.Fault as fault:
                if "ALREADY_STARTED" not in fault.faultString:
                    raise UpError(f"{program.name}: {fault.faultString}", log=self.log_of(program)) from fault

    def states(self) -> dict[str, dict[str, Any]]:
        """The state of each program in supervisord: ``statename``, ``pid``, ``spawnerr``, ``exitstatus`` …"""
        try:
            return {f"{entry['group']}:{entry['name']}": entry for entry in self._call("getAllProcessInfo")}
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return {}

    def pid_of(self, program: Program) -> int:
        """Its process; 0 where it does not run."""
        return int(self.states().get(program.full_name, {}).get("pid") or 0)

    def log_of(self, program: Program) -> Path:
        """The file of its output."""
        return self.logs / f"{program.name}.log"
