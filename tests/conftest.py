"""What holds for every test: no example of Hypothesis fails for taking long. Speed is the bench's."""

from hypothesis import settings

settings.register_profile("fledge", deadline=None)
settings.load_profile("fledge")
