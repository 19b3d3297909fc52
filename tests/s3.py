"""An S3 server of the tests' own: moto's, as a process on a loopback port, with one bucket."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings

from webapp.common.host import free_port

BUCKET = "files"


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[str]:
    """Its address, once it answers there; it ends with the block."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://{host}:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, "the S3 server did not start"
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)


def keep_files_there(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Have this process, and those that it starts, keep the site's files in the store at this address."""
    access = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1", "endpoint": endpoint}
    patch.setattr(settings, "FILES", f"s3://{BUCKET}/site")
    patch.setattr(settings, "FILES_ACCESS", access)
    patch.setenv("TILTYARD_FILES", settings.FILES)
    patch.setenv("TILTYARD_FILES_KEY_ID", "key")
    patch.setenv("TILTYARD_FILES_SECRET", "secret")
    patch.setenv("TILTYARD_FILES_ENDPOINT", endpoint)
