"""Files: CSV tables, archives of arrays, the journal of a run, and outputs that are written whole or not at all."""
