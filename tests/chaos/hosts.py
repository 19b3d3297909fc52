"""Hosts of a site as network namespaces: each with a link of its own to the site's, and processes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

SITE = "192.0.2.1"
"""The address of the site's host, wherever it is asked from."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Host(NamedTuple):
    """A namespace and the end of its link that is on the site's side."""

    name: str
    link: str

    @property
    def within(self) -> tuple[str, ...]:
        """Runs a command there, with processes of its own: another host's are out of reach."""
        return ("ip", "netns", "exec", self.name, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    def cut(self) -> None:
        """Nothing passes any more."""
        ip("link", "set", self.link, "down")

    def join(self) -> None:
        """Everything passes again."""
        ip("link", "set", self.link, "up")


@contextmanager
def made_hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts; the test is skipped where the network cannot be changed."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("Network namespaces need root, and the command ip.")
    mark = f"t{os.getpid() % 100_000}"
    made = [Host(f"{mark}h{number}", f"{mark}l{number}") for number in range(count)]
    try:
        ip("addr", "replace", f"{SITE}/32", "dev", "lo")
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"This machine's network cannot be changed: {exc.stderr.strip()}")
    try:
        for number, host in enumerate(made):
            near, far = f"198.51.100.{4 * number + 1}", f"198.51.100.{4 * number + 2}"
            ip("netns", "add", host.name)
            ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            ip("addr", "add", f"{near}/30", "dev", host.link)
            ip("link", "set", host.link, "up")
            ip("-n", host.name, "addr", "add", f"{far}/30", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "link", "set", "lo", "up")
            ip("-n", host.name, "route", "add", "default", "via", near)
        yield made
    finally:
        for host in made:
            # A process that a failed test left keeps the namespace, whose link would take the next hosts' packets.
            subprocess.run(["ip", "link", "del", host.link], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)
        ip("addr", "del", f"{SITE}/32", "dev", "lo")
