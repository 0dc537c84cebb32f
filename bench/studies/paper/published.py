"""Figures of the paper (Hamid, Schulze, Osborne and Roberts, AISTATS 2022) that ours stand beside.

Only those that were at hand when this was written; what is not here has no published column on the page.
"""

from __future__ import annotations

UCI: dict[str, dict[str, tuple[float, float]]] = {
    # set: method: (RMSE in the target's units, joint log density of standardised targets)
    "yacht": {"MASKERADE": (2.01, 47.2), "FKL": (0.63, -32.1)},
    "autompg": {"MASKERADE": (8.14, -57.3), "FKL": (3.09, -104.0)},
    "concrete": {"MASKERADE": (13.1, -123.0), "FKL": (5.81, -301.0)},
    "airfoil": {"MASKERADE": (4.59, -152.0), "FKL": (83.9, -864.0)},
}
BANK = {"concrete": 0.6889, "airfoil": 0.2578}  # mean squared error of standardised targets
SERIES = {"airline": 0.162, "co2_noaa_global": 0.026}  # RMSE of standardised targets
SOLAR = {"MASKERADE": 0.17, "VSSGP": 0.41}  # RMSE
