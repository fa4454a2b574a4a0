"""Backends of batches: this process, worker processes, or threads."""
