"""Errors of the evidence, of predictions and of arithmetic."""
