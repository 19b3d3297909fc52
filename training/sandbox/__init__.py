"""Runs a team's own Python where it can do nothing but compute. docs/adr/0003-sandbox.md says how, and what is left.

``process`` is one confined worker as its parent sees it, ``pool`` keeps workers warm, ``problems`` names what may go
wrong. ``worker`` is the program that runs inside and ``confinement`` what it does to itself before it reads any code;
these two import nothing but the standard library.
"""
