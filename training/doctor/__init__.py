"""The run doctor: what goes wrong in runs that learn from rollouts, found step by step while they train.

Pure arithmetic over the curves of ``training/metrics.py`` and compact facts of rollouts; it knows neither the web nor
torch. ``doctor.py`` sees one step after another, ``detectors/`` hold one function for each advisory, ``rules.py`` their
words, ``options.py`` their thresholds, ``reading.py`` makes the facts of a journal. docs/doctor.md is made of them.
"""
