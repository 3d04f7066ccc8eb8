"""What does each head do on a corpus? Every head, in one pass.

    mass on a set K of keys   Σ_{j ∈ K} A_ij          averaged over the queries that see one of K
    entropy                   −Σ_j A_ij log A_ij      and over log n_i, n_i keys visible
    distance, its variance    Σ_j A_ij |i − j|, and the variance of j under A_i
    write                     ‖z_i W_O‖ / ‖x_i‖       x: the stream before the block

K is the first token, the token itself, the previous one and those at further offsets; for
induction, the tokens after earlier copies of the query's token, and for duplicate tokens, these
copies (Olsson et al. 2022, "In-context Learning and Induction Heads"); other tokens of the query's
class (punctuation, whitespace, digits); other parts of its word. The first token is in K only for
the mass on it and for offsets, since heads attend to it when they find nothing else (Xiao et al.
2023).

Each number is also computed with the weights A_ij ‖v_j W_O‖, divided by their sum over j (Kobayashi
et al. 2020). The control is the number for equal weights on all visible keys. For induction and
duplicate tokens it is the number on the same text with its tokens in random order: as many copies,
whose order means nothing. A head that looks for copies alone, as an induction head does, exceeds
it only as far as text repeats itself. The control of what a head writes is the mean over its layer.
The interval is that of the mean over texts.

The numbers describe attention alone. ``effects=True`` measures beside them what the model's
prediction loses with each head ablated, and a scatter plot shows one against the other.
"""

from analyses.scan_heads.head_page import (
    DistanceHistogram,
    TextCells,
    axes_of,
    deciles_of,
    distances_of,
    furthest,
    rank_of,
    text_cells,
)
from analyses.scan_heads.headvis import write_headvis
from analyses.scan_heads.partial import PartialScan, ScanInterrupted
from analyses.scan_heads.result import HeadScan
from analyses.scan_heads.scan import ScanEstimate, estimate_scan_heads, scan_heads

__all__ = [
    "DistanceHistogram",
    "HeadScan",
    "PartialScan",
    "ScanEstimate",
    "ScanInterrupted",
    "TextCells",
    "axes_of",
    "deciles_of",
    "distances_of",
    "estimate_scan_heads",
    "furthest",
    "rank_of",
    "scan_heads",
    "text_cells",
    "write_headvis",
]
