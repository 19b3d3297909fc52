"""Datasets: what a row is, how files of rows are read, and the check of uploaded files in a limited process."""

from training.data.reader import load_rows
from training.data.schema import Row

__all__ = ["Row", "load_rows"]
