"""Whether a text states the right answer: what it claims, and whether that is the same value.

``claim`` finds the one answer that a text asserts, ``plain`` compares numbers, fractions, units and words by itself,
``equal`` asks Math-Verify (sympy) in a sandbox about all that needs algebra. ``inside`` is what runs in the sandbox.
"""
