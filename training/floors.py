"""The oldest versions of packages that Tiltyard starts with: below each lies a hole that is known and used.

The lock names newer ones. These hold where a person installed by hand, or shares an environment with something else.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.version import InvalidVersion, Version

FLOORS = {
    "torch": "2.6",  # CVE-2025-32434: torch.load ran code in spite of weights_only
    "transformers": "5.3",  # kernels and attention implementations that a model's config could name
    "pyarrow": "14.0.1",  # CVE-2023-47248: code from a Parquet or IPC file
    "redis": "4.5.5",  # CVE-2023-28858, -28859: answers of one connection given to another
    "django": "5.2.8",  # CVE-2025-64459: SQL through the names of a query's arguments
    "uvicorn": "0.11.7",  # CVE-2020-7695: a header that ends the head and writes an answer of its own
    "starlette": "0.49.1",  # CVE-2025-62727: a Range header that takes a processor for minutes
    "jinja2": "3.1.6",  # CVE-2025-27516: chat templates got out of their sandbox
    "urllib3": "2.6.3",  # CVE-2026-21441: a small answer behind a redirect that unpacks without end
    "requests": "2.32.4",  # CVE-2024-47081: passwords of .netrc sent to another host
}


def floors_broken() -> list[str]:
    """A sentence for each installed package that is too old. Nothing is imported; what is missing is not judged."""
    found = []
    for name, floor in FLOORS.items():
        try:
            have = version(name)
            if Version(have) < Version(floor):
                found.append(f"{name} {have} has a known security hole: install {floor} or newer (make setup).")
        except (PackageNotFoundError, InvalidVersion):
            continue
    return found
