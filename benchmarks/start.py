"""What `manage.py up` takes until a person can click: ``python benchmarks/start.py [--clone]``.

Starts a Tiltyard in an empty folder, ends it, and starts it again in the same folder, which is migrated then. Each time
it asks for the login page until that answers 200, and sums the processor time of `up`, of all that descend from it, and
of those that have ended, PostgreSQL and Redis included: ``first_page_cpu_s``. ``ready_cpu_s`` is the same when `up`
shows its link, with every program ready, and ``memory_mib`` is what all of them hold then, each shared page counted
once. ``--clone`` starts from a clone of the committed tree, which has no compiled modules: its first start compiles.
Prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.site import ROOT, Site

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: whose parent has ended becomes ours, so no processor time is lost


def cpu_seconds() -> float:
    """Processor time of all our descendants, the ended ones too. Ours alone is not in it."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory_mib() -> float:
    """The memory of our descendants: proportional set sizes, in MiB."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


def programs() -> dict[str, float]:
    """Processor time by command line so far, of what still runs."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            name = " ".join(process.cmdline()[1:])[:90] or process.name()
            found[name] = round(found.get(name, 0.0) + times.user + times.system, 2)
    return dict(sorted(found.items(), key=lambda item: -item[1])[:12])


class Page(threading.Thread):
    """Asks for the login page until it answers 200, and notes the processor time of then."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.url, self.cpu_s = f"http://127.0.0.1:{port}/login/", 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Ask."""
        while not self.ended.wait(0.05):
            with suppress(OSError), urllib.request.urlopen(self.url, timeout=60) as answer:  # noqa: S310 - ours
                if answer.status == 200:
                    self.cpu_s = cpu_seconds()
                    return


def start(site: Site) -> dict[str, Any]:
    """One start until everything is ready."""
    before, page = cpu_seconds(), Page(site.port)
    page.start()
    with site:
        page.join(60)
        page.ended.set()
        return {
            "first_page_cpu_s": round(page.cpu_s - before, 2) if page.cpu_s else None,
            "ready_cpu_s": round(cpu_seconds() - before, 2),
            "memory_mib": round(memory_mib()),
            "programs": programs(),
        }


def measure(*, clone: bool) -> dict[str, Any]:
    """A first and a second start."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-start-", ignore_cleanup_errors=True) as folder:
        root = ROOT
        if clone:
            root = Path(folder) / "clone"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True, timeout=120)
        data = Path(folder) / "data"
        first, second = (start(Site(demo=False, data=data, root=root)) for _turn in range(2))
    return {"benchmark": "start of up", "clone": clone, "first": first, "second": second, "load": os.getloadavg()[0]}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    print(json.dumps(measure(clone="--clone" in sys.argv)))
