# SPDX-License-Identifier: Apache-2.0
"""Random routes, made on the device head by head, in the library's form and in the forms that the peers take."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Route:
    """List i = head * n_rows + row is picked[row_offsets[i] .. row_offsets[i + 1]), ascending.

    Query heads head * heads_per_list and on, so many, share it.
    """

    row_offsets: torch.Tensor  # [heads * n_rows + 1] i64
    picked: torch.Tensor  # [total] i32, blocks of the row's own sequence
    own_begin: torch.Tensor  # [n_rows] i64: the first block that holds a query's own key
    heads: int
    heads_per_list: int

    @property
    def n_rows(self):
        return self.own_begin.numel()

    @property
    def total(self):
        """Of every query head."""
        return self.picked.numel() * self.heads_per_list

    def blocks(self, q_head, row):
        begin, end = self.row_offsets[q_head // self.heads_per_list * self.n_rows + row:][:2].tolist()
        return self.picked[begin:end]


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The rows of one sequence, each an [n_rows] i64: which blocks they see, and which hold their own keys."""

    visible: torch.Tensor
    own_begin: torch.Tensor
    own_end: torch.Tensor
    n_blocks: int


def geometry(case, length, device):
    begin = torch.arange(0, length, case.q_block, device=device)
    end = (begin + case.q_block).clamp(max=length)
    own_end = (end + case.k_block - 1) // case.k_block
    n_blocks = -(-length // case.k_block)
    visible = own_end if case.causal else torch.full_like(own_end, n_blocks)
    return Geometry(visible, begin // case.k_block, own_end, n_blocks)


def counts_of(case, rows):
    """How many blocks each row picks: what the case says, no fewer than are forced, no more than there are."""
    forced = rows.own_end - rows.own_begin + (rows.own_begin > 0)
    wanted = (rows.visible * case.density).round().long() if case.density else torch.full_like(rows.visible, case.top)
    return torch.minimum(torch.maximum(wanted, forced), rows.visible)


def pick(rows, counts, generator):
    """The rows' lists, one after the other: the sink, the row's own blocks, and others at random."""
    device = rows.visible.device
    block = torch.arange(rows.n_blocks, device=device)
    weight = torch.rand(len(counts), rows.n_blocks, device=device, generator=generator)
    weight.masked_fill_(block >= rows.visible[:, None], -1)
    weight.masked_fill_((block == 0) | ((block >= rows.own_begin[:, None]) & (block < rows.own_end[:, None])), 2)
    widest = int(counts.max())
    chosen = weight.topk(widest, dim=1).indices
    beyond = torch.arange(widest, device=device) >= counts[:, None]
    chosen = chosen.masked_fill_(beyond, rows.n_blocks).sort(dim=1).values
    return chosen[chosen < rows.n_blocks].int()


def make_route(case, device, seed=0):
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    sequences = [geometry(case, length, device) for length in case.lengths]
    counts = [counts_of(case, rows) for rows in sequences]
    picked, lengths = [], []
    heads = case.q_heads // case.heads_per_list
    for head in range(heads):
        for rows, per_row in zip(sequences, counts):
            if case.longest > 1 and head == heads - 1 and rows is sequences[-1]:
                per_row = per_row.clone()
                per_row[-1] = min(int(per_row[-1]) * case.longest, int(rows.visible[-1]))
            picked.append(pick(rows, per_row, generator))
            lengths.append(per_row)
    offsets = torch.zeros(heads * case.n_rows + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.cat(lengths), 0, out=offsets[1:])
    return Route(offsets, torch.cat(picked), torch.cat([rows.own_begin for rows in sequences]), heads,
                 case.heads_per_list)


def padded(route, keep=None):
    """Counts [q_heads, n_rows] i32 and blocks [q_heads, n_rows, widest] i32, of the picks that `keep` marks."""
    n_lists = route.row_offsets.numel() - 1
    lengths = route.row_offsets.diff()
    of_list = torch.repeat_interleave(torch.arange(n_lists, device=lengths.device), lengths)
    picked = route.picked
    if keep is not None:
        of_list, picked = of_list[keep], picked[keep]
        lengths = torch.bincount(of_list, minlength=n_lists)
    begin = lengths.cumsum(0) - lengths
    slot = torch.arange(len(picked), device=lengths.device) - begin[of_list]
    blocks = torch.zeros(n_lists, max(1, int(lengths.max())), dtype=torch.int32, device=lengths.device)
    blocks[of_list, slot] = picked
    shape = (route.heads, route.n_rows)
    return tuple(x.repeat_interleave(route.heads_per_list, 0) for x in (lengths.int().view(shape),
                                                                        blocks.view(*shape, -1)))


def split_at_own(route):
    """Padded lists of the blocks that a token mask must cut, a row's own, and of those that it must not."""
    own_begin = route.own_begin.repeat(route.heads).repeat_interleave(route.row_offsets.diff())
    is_own = route.picked >= own_begin
    return padded(route, is_own), padded(route, ~is_own)
