"""How much memory a job needs on a device, before it is started: ``python -m training memory job.yaml``.

``counting.py`` counts weights, ``tracing.py`` runs the loss on tensors without content, ``table.py`` makes the terms of
a job, ``advice.py`` finds the smallest change that fits, ``devices.py`` knows the devices.
"""
