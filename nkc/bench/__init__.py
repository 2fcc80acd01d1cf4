"""Measurements: device time of built kernels beside what a server would otherwise run, and what follows from them.

Holds: inputs in device memory, baselines, the correctness gate, timing, records, proposals for the tuning table,
pictures drawn from records, other tuners' tables read as hints. Leaves out: selection, which reads the committed table
(`nkc.tactics.tuning`) and never measures; printing. torch and numpy are loaded where something runs.
"""
