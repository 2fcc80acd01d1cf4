"""Between a contract and its oracle: one module per operation, with `tensors` (inputs) and `judge` (results)."""
