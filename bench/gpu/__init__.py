"""The parts of ``bench/gpu_check.py``: what is measured on a card, against what, and how it is written down."""
