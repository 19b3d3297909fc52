"""A GRPO job trained by verl on Ray, with our player, environments, rewards and journal.

1. ``launch.py`` writes the job folder ``<run>/verl`` where Tiltyard's own packages are: the config, the tasks in order,
   the tokenizer, and verl's settings (``settings.py``), which refuse by name what verl cannot do.
2. ``python -m training.verl_backend <run>/verl`` starts verl's own trainer with them, in verl's virtualenv
   (``__main__.py``, ``trainer.py``).
3. Every process that plays has one ``Actor`` (``actor.py``): our steps, seeds, rewards and exclusion, a journal of its
   own below ``<run>/actors``, and verl's sampler behind our ``Engine`` (``engine.py``, ``loop.py``).
4. ``merger.py`` makes the one journal of the run of them.

Only ``loop.py``, ``tasks.py`` and ``trainer.py`` import verl. See docs/adr/0014-learners.md and docs/verl.md.
"""
