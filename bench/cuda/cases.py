# SPDX-License-Identifier: Apache-2.0
"""What is timed: the shapes, the routes and the bars of each case of the CUDA attend benchmark. Pure Python.

The command line has the shapes too (cases.cc); a test keeps the two alike.
"""

import dataclasses

RAGGED = (1024, 3000, 5120, 9999, 16384, 24001, 40000, 65536)  # tokens; some end inside a page and inside a block


@dataclasses.dataclass(frozen=True)
class Case:
    """Prefill of whole sequences, queries in bf16. Without `density` and `top` it is dense: no list to read."""

    name: str
    q_block: int = 128
    k_block: int = 128
    lengths: tuple[int, ...] = (32768,)  # tokens of each sequence
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    density: float = 0.0  # picked blocks of a row over those it may see
    top: int = 0  # or: picked blocks of a row
    longest: int = 1  # the very last row picks so many times what the others pick
    heads_per_list: int = 1  # neighbouring query heads that share their rows' lists
    page: int = 0  # tokens; 0: keys and values are contiguous
    causal: bool = True
    kv_dtype: str = "bf16"  # or "e4m3", with a scale a head
    by_name_only: bool = False  # takes tens of GB and seconds a call
    beside: str = ""  # the case that is measured in the same turns, to compare rates with
    bar_tflops: float = 0.0
    bar_extra_gb: float = 0.0  # at most so much device memory beside q, k, v, out and lse: lists and workspace
    bars: tuple[tuple[str, float], ...] = ()  # (engine, least ratio of rates); "beside" stands for that case

    @property
    def is_dense(self):
        return not self.density and not self.top

    @property
    def tokens(self):
        return sum(self.lengths)

    @property
    def block(self):
        return "dense" if self.is_dense else f"{self.q_block}x{self.k_block}"

    def rows_of(self, length):
        return -(-length // self.q_block)

    @property
    def n_rows(self):
        """Rows of one head, sequence after sequence."""
        return sum(self.rows_of(length) for length in self.lengths)

    @property
    def visible_pairs(self):
        """Pairs of query and key that one head may see: what density is a share of."""
        return sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)

    @property
    def dense_flops(self):
        """Of both products, over the visible pairs."""
        return 4 * self.head_dim * self.q_heads * self.visible_pairs


def visited_flops(case, picked_blocks):
    """Of both products: whole blocks where there is a list, the visible pairs where there is none."""
    if case.is_dense:
        return case.dense_flops
    return 4 * case.head_dim * picked_blocks * case.q_block * case.k_block


def density_of(case, picked_blocks):
    """Visited over visible pairs; a full list lies a little above 1, since its diagonal blocks count whole."""
    if case.is_dense:
        return 1.0
    return picked_blocks * case.q_block * case.k_block / (case.visible_pairs * case.q_heads)


OVER_FA4 = (("fa4", 1.0),)
OVER_CUDNN = (("cudnn-sparse", 1.0),)
NEAR_FA3 = (("fa3", 0.95),)

TABLE = (
    Case("128x128-32k-5", density=0.05, bar_tflops=450, bars=OVER_FA4),
    Case("128x128-32k-10", density=0.10, bar_tflops=540, bars=OVER_FA4),
    Case("128x128-32k-25", density=0.25, bars=OVER_FA4),
    Case("128x128-32k-full", density=1.0, beside="dense-32k", bars=(*OVER_FA4, ("beside", 0.95))),
    Case("128x128-128k-5", density=0.05, lengths=(131072,), bar_tflops=600, bars=OVER_FA4),
    Case("128x128-1m-5", density=0.05, lengths=(1048576,), by_name_only=True, bar_extra_gb=1.0),
    Case("128x64-32k-10", k_block=64, density=0.10, bar_tflops=500),
    Case("128x64-128k-10", k_block=64, density=0.10, lengths=(131072,), bar_tflops=500),
    Case("64x64-32k-10", 64, 64, density=0.10, bars=OVER_CUDNN),
    Case("64x64-32k-10-group", 64, 64, density=0.10, heads_per_list=4, beside="64x64-32k-10", bars=(("beside", 1.0),)),
    # As many query heads as MagiAttention's numbers for packed heads were published with.
    Case("64x64-64k-10-mqa", 64, 64, lengths=(65536,), q_heads=128, kv_heads=1, density=0.10, heads_per_list=128,
         causal=False, bar_tflops=600),
    Case("64x64-128k-5", 64, 64, lengths=(131072,), q_heads=8, density=0.05, bars=OVER_CUDNN),
    # The shape that FlashInfer's SM90 path for video was published with: no causal mask, as many picks in every row.
    Case("64x64-109632-top64", 64, 64, lengths=(109632,), q_heads=7, kv_heads=7, top=64, causal=False,
         bar_tflops=317),
    Case("dense-8k", lengths=(8192,), bars=NEAR_FA3),
    Case("dense-32k", bars=NEAR_FA3),
    Case("dense-128k", lengths=(131072,), bars=NEAR_FA3),
    Case("even-rows-32k", top=5),
    Case("one-long-row-32k", top=5, longest=50, beside="even-rows-32k", bars=(("beside", 0.85),)),
    Case("ragged", lengths=RAGGED, density=0.10),
    Case("ragged-paged", lengths=RAGGED, density=0.10, page=64, beside="ragged", bars=(("beside", 0.92),)),
    Case("d64-128x64-32k-10", k_block=64, head_dim=64, density=0.10, bar_tflops=380),
    Case("e4m3-128x128-32k-10", density=0.10, kv_dtype="e4m3", beside="128x128-32k-10"),
    Case("e4m3-128x64-32k-10", k_block=64, density=0.10, kv_dtype="e4m3", beside="128x64-32k-10"),
    Case("e4m3-128x64-128k-10", k_block=64, lengths=(131072,), density=0.10, kv_dtype="e4m3",
         beside="128x64-128k-10"),
    Case("e4m3-dense-32k", kv_dtype="e4m3", beside="dense-32k"),
)
BY_NAME = {case.name: case for case in TABLE}


def select(names):
    """The cases of these names in their order; of none: all but large ones and those that only stand beside others."""
    if not names:
        beside = {case.beside for case in TABLE}
        return [case for case in TABLE
                if not case.by_name_only and (case.name not in beside or case.bars or case.bar_tflops)]
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise ValueError(f"--case {unknown[0]} is unknown; legal: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names]
