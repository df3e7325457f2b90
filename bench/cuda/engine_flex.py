# SPDX-License-Identifier: Apache-2.0
"""FlexAttention, PyTorch's generator of Triton kernels, with a route's own blocks partial and the others full."""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

import route as routes
from contestant import Contestant, Unavailable, need_one_sequence


def sees(batch, head, query, key):
    return query >= key


class Engine:
    name = "flex"

    def __init__(self):
        torch._dynamo.config.recompile_limit = 64  # one kernel a case; beyond the limit it would run uncompiled
        self.compiled = torch.compile(flex_attention, dynamic=False)

    def prepare(self, problem):
        need_one_sequence(problem)
        case = problem.case
        if case.is_dense or not case.causal:
            raise Unavailable("timed on causal lists only")
        q, k, v = problem.heads_first
        n_blocks = -(-case.tokens // case.k_block)
        lists = []
        for counts, blocks in routes.split_at_own(problem.route):
            lists += [counts[None], F.pad(blocks, (0, n_blocks - blocks.shape[-1]))[None]]
        mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=(case.q_block, case.k_block), mask_mod=sees)
        # A kernel's tile must divide the block; the default one may not.
        small = min(case.q_block, case.k_block) < 128
        options = {"BLOCK_M": case.q_block, "BLOCK_N": case.k_block} if small else None

        def run():
            return self.compiled(q, k, v, block_mask=mask, enable_gqa=True, kernel_options=options)[0].transpose(0, 1)

        return Contestant(run)
