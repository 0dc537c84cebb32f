"""The paper's tables and figures, and forecasts: ``python -m bench.studies.paper TABLE``."""
