"""Other libraries doing what fledge does: N children of one parent, measured in environments of their own."""
