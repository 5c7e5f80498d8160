"""How far estimates are from runs that others measured, and the constants fitted on them."""
