"""Start of worker processes: start methods, the fork server, and the first steps of a worker."""
