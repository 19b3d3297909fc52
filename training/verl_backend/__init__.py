"""A GRPO job trained by verl on Ray, with our player, environments, rewards and journal.

1. ``learner.py`` is the job seen from Tiltyard's own packages: it has the job folder ``<run>/verl`` written
   (``launch.py``: the config, the tasks in order, the tokenizer, and verl's settings of ``settings.py``, which names
   what verl cannot do), starts verl's process, and merges what its processes journal (``merger.py``).
2. ``python -m training.verl_backend <run>/verl`` runs verl's own trainer in verl's virtualenv (``__main__.py``,
   ``trainer.py``), on a Ray of this machine or as a job of a cluster (``cluster.py``); ``on_cpu`` on processors. verl
   counts samplings, a run counts updates (``counting.py``); each update is asked for by itself (``updates.py``), with a
   loss that divides as on one device (``loss.py``).
3. Every process that plays has one ``Actor`` (``actor.py``): our steps, seeds, rewards and exclusion, a journal of its
   own below ``<run>/actors``, and verl's sampler behind our ``Engine`` (``engine.py``, ``loop.py``).

Only ``loop.py``, ``loss.py``, ``tasks.py``, ``trainer.py``, ``updates.py`` and ``on_cpu`` import verl
(docs/adr/0014-learners.md, docs/verl.md).
"""
