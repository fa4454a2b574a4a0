"""Masks of rows: those that a step leaves out, and those that a reset is for."""
