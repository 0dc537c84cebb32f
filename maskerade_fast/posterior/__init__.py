"""The posterior that a run returns: its predictions, bands, calibrated intervals and archive."""
