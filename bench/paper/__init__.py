"""The paper's tables and figures, and forecasts, by command: ``python bench/paper TABLE``, see bench/README.md."""
