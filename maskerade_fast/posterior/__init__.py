"""What a run returns: predictions, bands, calibrated intervals and its archive."""
