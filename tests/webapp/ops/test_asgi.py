"""What the web server has loaded before it answers anybody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ASKED = """
import gc
import webapp.asgi, webapp.chat.views, sys
frozen = gc.get_freeze_count()
handler = type(webapp.asgi.django_app).__module__
print(gc.isenabled() and frozen > 50_000, "webapp.api.urls" in sys.modules, handler, len(gc.get_objects()) < frozen / 4)
"""


def test_a_collection_of_garbage_does_not_walk_what_is_loaded(tmp_path: Path) -> None:
    """It took 130 ms, in which no request was answered."""
    surroundings = os.environ | {"TILTYARD_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASKED], env=surroundings, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.returncode) == (["True", "True", "webapp.common.serving", "True"], 0), done.stderr
