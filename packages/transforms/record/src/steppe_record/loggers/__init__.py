"""Loggers of scalars, videos, settings and histograms.

Each logger imports its library when it is made.
"""
