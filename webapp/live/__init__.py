"""Websockets: a snapshot of a run, then its changes."""
