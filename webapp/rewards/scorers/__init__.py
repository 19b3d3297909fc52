"""Scoring for people who wait for it, in child processes: the web server itself computes nothing.

``places`` is the line of the people, ``child`` one process; ``asking`` puts a job into the line and gives the answers.

1. Each process of ours has a few places. A person runs one job at a time, and people take turns: the person who was
   served last goes to the end of the line.
2. Further jobs of a person wait behind it, a few of them; the next one is refused (``TooMany``, 429).
3. A job ends at its time limit, or when its asker goes away: its child is killed and a fresh one is started.
4. One child more than runs is kept loaded, so that the next person does not wait for a start.
5. A child that dies by itself costs its own job alone; what it had said before is kept.
"""
