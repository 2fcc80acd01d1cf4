"""`python -m nkc`."""

from nkc.cli import main

main()
