"""nkc: an ahead-of-time kernel compiler for model-serving builds.

A build hands it contracts, it hands back code objects with everything needed to launch them, and an
`explain.json` that says of every candidate why it was chosen or not. Nothing is decided on the request path.
"""

__version__ = "0.1.0"
