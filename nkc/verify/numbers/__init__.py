"""Number formats, exactly: what every bit pattern means and how a real number becomes one.

Holds decoding and encoding of the 8-bit formats, bf16, UE8M0 scales, and the exactly rounded fp32 fma, all in
numpy and from the definitions. Leaves out every operation (see `oracles`) and every tolerance (see `bounds`).
Nothing here is shared with kernels, templates or tactics.
"""
