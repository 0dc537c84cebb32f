"""The adaptive reference measure: modes of the posterior, t distributions round them, and evidence from their draws."""
