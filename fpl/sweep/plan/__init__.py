"""What is needed and what it costs, before anything starts."""
