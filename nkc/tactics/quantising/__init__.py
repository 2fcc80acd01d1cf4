"""What the tactics of the quantising operations share: requirements, what the template of a quantiser places, proofs.

No operation of its own, and no tactics.
"""
