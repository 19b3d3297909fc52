"""Other trackers hear of a run while it runs, each from a process of its own that reads the run's journal.

1. ``starting.py`` starts one process a tracker when the run begins. The trainer hands it nothing more: no queue can
   fill up and no call can hang, so a tracker that is slow, away or broken costs no step anything.
2. ``trackers.py`` reads the journal as the trainer appends to it, and the journals of earlier attempts for what was
   never reported. A mark next to the journal says what was, so a resumed run reports no step twice.
3. ``telling.py`` reports it: what fails is tried again, with a pause that grows; the run's log says so once.
4. ``trackers.py`` has the trackers themselves, each through its own package, under our names and our steps.
"""
