"""Rewards that members write in Python: who may, the editor, and the test before code can be saved."""
