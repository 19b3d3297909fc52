"""Tiltyard from scripts: ``Tiltyard`` for Python, ``tiltyard`` for the command line."""

from tiltyard_client.api import LoginNeeded, Refused, Tiltyard, Unreachable

__all__ = ["LoginNeeded", "Refused", "Tiltyard", "Unreachable"]
