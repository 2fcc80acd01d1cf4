"""identity: the accumulator itself."""

from nkc.ir.epilogues import EpilogueKind

EPILOGUE = EpilogueKind(kind="identity", meaning="acc", triton="acc", cuda="acc")
