"""What each program of `up` imports before it is ready: a module that it does not need costs every start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

ROOT = Path(__file__).resolve().parents[3]
STARTER = """
import sys; sys.argv[1:] = ['up', '--port', 'none']
import manage
try: manage.main()
except SystemExit: pass
import gc
assert gc.get_threshold()[0] == 50_000
"""
COMMAND = "import django; django.setup()\nimport webapp.{room}.management.commands.{name} as command, sys"
SKIPS = "assert command.Command.requires_system_checks == []"
LINK = "assert command.login_link_path('a-token') == '/login/a-token/'"
# Without collections meanwhile, 80 come before and four hundred in all; what was imported is in none of those to come.
WORKER = """
import gc, sys
from webapp.celery import app
app.loader.import_default_modules()
assert sum(one["collections"] for one in gc.get_stats()) < 200
assert gc.isenabled() and len(gc.get_objects()) < gc.get_freeze_count() / 4
"""


@pytest.mark.parametrize(
    ("code", "without"),
    [
        (STARTER, ("celery", "psycopg", "redis", "django.contrib.auth.models", "webapp.urls")),
        (WORKER, ("webapp.urls", "webapp.api.urls", "ninja", "uvicorn", "sympy")),
        (f"{COMMAND.format(room='ops', name='run_clockwork')}; {SKIPS}", ("webapp.urls", "ninja", "sympy")),
        (f"{COMMAND.format(room='ops', name='keep_environments')}; {SKIPS}", ("webapp.urls", "ninja")),
        ("import django, sys; django.setup()", ("numpy", "sympy", "webapp.urls")),
        ("import django, sys; django.setup(); import webapp.runs.records.sessions", ("torch", "trl")),  # a migration
        (
            "import sys, training.algorithms.lessons, training.algorithms.loading",
            ("torch", "trl", "peft"),
        ),  # *Rendered*
        (f"{COMMAND.format(room='ops', name='prepare_site')}; {LINK}", ("numpy", "webapp.urls", "ninja")),
    ],
)
def test_a_program_imports_no_more_than_it_needs(code: str, without: tuple[str, ...], tmp_path: Path) -> None:
    surroundings = os.environ | {"TILTYARD_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    code += f"\nprint(sorted(set(sys.modules) & {set(without)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=surroundings, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.split("\n")[-2], done.returncode) == ("[]", 0), done.stderr


def test_the_checks_that_no_program_makes_find_nothing() -> None:
    call_command("check", fail_level="WARNING")
