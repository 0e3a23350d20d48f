"""Case functions: `case(strategy, world) -> dict`, the same code on every worker and in one plain process."""
