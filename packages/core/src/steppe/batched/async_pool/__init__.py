"""Environments that are sent work and asked for results, each at its own pace."""
