"""Every head on a corpus: statistics, tokens, texts and effects, in one pass."""

from analyses.scan_heads.partial import PartialScan, ScanInterrupted
from analyses.scan_heads.result import HeadScan
from analyses.scan_heads.scan import ScanEstimate, estimate_scan_heads, scan_heads

__all__ = [
    "HeadScan",
    "PartialScan",
    "ScanEstimate",
    "ScanInterrupted",
    "estimate_scan_heads",
    "scan_heads",
]
