"""What a reward does to a frozen set of rollouts, computed for all of them at once.

A set is a folder (``writing`` makes it, ``table`` reads it): episodes and rows as JSON lines, and columns of numbers.
``values`` keeps the raw values of components beside it, so that moved weights never score again; ``scoring`` computes
what is missing. ``terms`` and ``groups`` repeat the arithmetic of ``training/rewards/combining.py`` on whole columns,
``figures`` and ``alarms`` say what comes of it. NaN in a column is a missing value, which is never 0.
"""
