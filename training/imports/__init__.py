"""Runs of other trainers, read into the journal that our own trainer writes.

``python -m training import --input FILE… --output FOLDER`` makes a folder that ``manage.py import_run`` shows in the
browser. What a file is, is told by its content; a new kind of file is a module beside ``console.py`` with a ``READER``
and a line in ``kinds.READERS``.
"""
