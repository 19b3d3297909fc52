"""A process that scores for people who wait: ``python -m training.rewards.scorer``.

``wire`` is what it is asked and what it says, ``worker`` the program. Its parent (``webapp/rewards/scorers``) starts it
with named variables, kills it at the end of its time, and never sends it a second job before the first one's end.
"""
