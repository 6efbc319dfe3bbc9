"""The one rounding, its constants, and the rounding of stores."""
