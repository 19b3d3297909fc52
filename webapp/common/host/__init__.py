"""This machine: its processes, its free ports, and the services that run embedded."""
