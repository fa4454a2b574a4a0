"""Who carries out what a batch asks: this process, worker processes, or threads."""
