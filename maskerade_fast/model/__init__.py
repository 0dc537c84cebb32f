"""Data in their units and what may explain them: mixtures, trend, prior, latent coordinates, reference measures."""
