"""Chains of transforms at run time, compiled once from the specs between the transforms."""
