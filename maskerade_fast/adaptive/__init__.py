"""The adaptive reference measure: modes of the posterior, t distributions around them, evidence from draws of these."""
