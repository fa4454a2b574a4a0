"""Loggers: where scalars, videos, settings and histograms go. Each loads its library when it is made."""
