"""The installation's figures for Prometheus."""
