"""Tables of numbers in text files, as people have them: any delimiter, decimal commas, notes, missing cells."""

from .table import Table, read_table

__all__ = ["Table", "read_table"]
