"""Times and memory of the package's pieces."""
