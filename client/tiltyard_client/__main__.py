"""``python -m tiltyard_client``."""

from tiltyard_client.cli import main

main()
