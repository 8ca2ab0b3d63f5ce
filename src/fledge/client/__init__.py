"""The ways to the verbs of `commands`, for whoever is not the process that holds the state folder."""
