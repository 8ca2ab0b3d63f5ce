"""The command line: reads arguments, prints views. It decides nothing."""
