"""Asynchronous pools: calls are sent to environments, and their results received later."""
