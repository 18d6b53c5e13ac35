"""Tables: a campaign's cells filled from the store, and their renderers."""
