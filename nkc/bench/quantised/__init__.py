"""What the bench shares between operations that write codes and scales: operands, the gate, what torch makes of them.

Their floor is bytes over the bandwidth of copying: they write about as much as they read.
"""
