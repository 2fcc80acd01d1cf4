"""What all tests share: how Hypothesis runs."""

from hypothesis import settings

settings.register_profile("nkc", deadline=None)  # a loaded machine is no failure
settings.load_profile("nkc")
