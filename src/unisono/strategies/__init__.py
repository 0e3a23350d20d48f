"""What the user makes: a strategy, its scope and what it says of the cluster."""
