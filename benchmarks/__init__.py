"""Benchmarks: each prints one JSON object; ``python -m benchmarks`` runs those of docs/performance.md in turn."""
