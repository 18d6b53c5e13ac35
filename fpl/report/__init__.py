"""What people look at: pure functions of the store. Imports neither torch nor Ray."""
