"""Ways to call the verbs of `commands` for programs that do not know which process holds the state folder."""
