"""Environments that write rows of numpy arrays, and the one loop that steps them."""
