"""Methods that are no part of the suite."""
