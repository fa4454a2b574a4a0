"""How a worker process comes to be, and what it does first."""
