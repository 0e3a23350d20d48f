"""Where the time goes: nothing yet."""
