# SPDX-License-Identifier: Apache-2.0
"""The tensors of a case on the device: random q, k and v, the route, and the layouts that peers want."""

import functools
import itertools

import torch

import cases
import route as routes

E4M3_MOST = 448


class Quantised:
    """x [tokens, heads, head_dim] in e4m3, each head over a scale [heads] f32 of its own, and what that is worth."""

    def __init__(self, x):
        self.scale = x.abs().amax((0, 2)).float() / E4M3_MOST
        self.data = (x.float() / self.scale[:, None]).to(torch.float8_e4m3fn)
        self.worth = self.data.float() * self.scale[:, None]


class Problem:
    """q, k, v [tokens, heads, head_dim] bf16, sequence after sequence; `route` is None where the case is dense.

    Where the case's keys and values are e4m3, `cache` has them, and k and v are f32 and what they are worth.
    """

    def __init__(self, case, device="cuda", seed=0):
        self.case = case
        self.scale = case.head_dim ** -0.5
        self.device = torch.device(device)
        generator = torch.Generator(device=device)
        generator.manual_seed(seed)
        self.q, self.k, self.v = (
            torch.randn(case.tokens, heads, case.head_dim, device=device, dtype=torch.bfloat16, generator=generator)
            for heads in (case.q_heads, case.kv_heads, case.kv_heads))
        self.cache = None
        if case.kv_dtype == "e4m3":
            self.cache = Quantised(self.k), Quantised(self.v)
            self.k, self.v = (side.worth for side in self.cache)
        self.route = None if case.is_dense else routes.make_route(case, device, seed)
        self.begins = list(itertools.accumulate(case.lengths, initial=0))  # of the sequences, in tokens
        self.row_begins = list(itertools.accumulate(map(case.rows_of, case.lengths), initial=0))

    @property
    def picked_blocks(self):
        return 0 if self.route is None else self.route.total

    @property
    def flops(self):
        return cases.visited_flops(self.case, self.picked_blocks)

    @property
    def density(self):
        return cases.density_of(self.case, self.picked_blocks)

    @functools.cached_property
    def cu_seqlens(self):
        return torch.tensor(self.begins, dtype=torch.int32, device=self.device)

    @functools.cached_property
    def sequences(self):
        """[sequences, 5] i64, the library's form: q_begin, q_len, k_begin, k_len, q_offset."""
        rows = [(begin, length, begin, length, 0) for begin, length in zip(self.begins, self.case.lengths)]
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    @functools.cached_property
    def heads_first(self):
        """q, k, v as [1, heads, tokens, head_dim], contiguous."""
        return tuple(x.transpose(0, 1).contiguous()[None] for x in (self.q, self.k, self.v))

    @functools.cached_property
    def pages(self):
        """k and v [n_pages, page, kv_heads, head_dim] in shuffled pages, and their table [sequences, widest] i32.

        What a last page holds past its sequence's end is NaN: nobody may let it through.
        """
        page = self.case.page
        n_pages = [-(-length // page) for length in self.case.lengths]
        order = torch.randperm(sum(n_pages), generator=torch.Generator().manual_seed(0)).to(self.device)
        table = torch.zeros(len(n_pages), max(n_pages), dtype=torch.int32, device=self.device)
        k, v = (x.new_full((sum(n_pages), page, *x.shape[1:]), float("nan")) for x in (self.k, self.v))
        first = 0
        for i, (begin, length) in enumerate(zip(self.begins, self.case.lengths)):
            own = order[first:first + n_pages[i]]
            table[i, :n_pages[i]] = own
            for paged, flat in ((k, self.k), (v, self.v)):
                whole = flat.new_full((n_pages[i] * page, *flat.shape[1:]), float("nan"))
                whole[:length] = flat[begin:begin + length]
                paged[own] = whole.view(n_pages[i], page, *flat.shape[1:])
            first += n_pages[i]
        return k, v, table
