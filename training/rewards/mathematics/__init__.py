"""Whether a text states the right answer: what it claims, and whether that is the same value.

``equal`` finds the one answer that a text asserts, compares numbers, fractions, units and words by itself, and asks
Math-Verify (sympy) in a sandbox about all that needs algebra. ``inside`` is what runs in the sandbox.
"""
