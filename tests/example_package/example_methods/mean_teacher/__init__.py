"""Mean teacher."""
