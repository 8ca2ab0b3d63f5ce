"""What fledge costs, beside what the same work costs without it. `python -m bench` prints one table."""
