# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 4 (CuTe DSL) from the wheel flash-attn-4: block-sparse on a route, dense where the case is.

The row's own blocks go into its partial list, under a causal mask function; the others are full blocks. Heads are not
packed: every query head has its own list.
"""

import torch

import route as routes
from contestant import Contestant, need_one_sequence, need_package


class Engine:
    name = "fa4"

    def __init__(self):
        self.forward = need_package("flash_attn.cute.interface", "flash-attn-4")._flash_attn_fwd
        self.Lists = need_package("flash_attn.cute.block_sparsity", "flash-attn-4").BlockSparseTensorsTorch
        cute = need_package("cutlass.cute", "nvidia-cutlass-dsl")

        @cute.jit
        def sees(batch, head, query, key, lengths, aux):
            return key <= query

        self.causal_mask = sees

    def prepare(self, problem):
        need_one_sequence(problem)
        case = problem.case
        q, k, v, out = problem.q[None], problem.k[None], problem.v[None], torch.empty_like(problem.q)
        options = {"causal": case.causal} if case.is_dense else self._sparse(case, problem.route)

        def run():
            self.forward(q, k, v, out=out[None], **options)
            return out

        return Contestant(run, dense=case.is_dense, token_causal=case.causal, out=out)

    def _sparse(self, case, route):
        if case.causal:
            (partial_counts, partial), (full_counts, full) = routes.split_at_own(route)
        else:
            full_counts, full = routes.padded(route)
            partial_counts, partial = torch.zeros_like(full_counts), full[..., :1].contiguous()
        lists = self.Lists(mask_block_cnt=partial_counts[None], mask_block_idx=partial[None],
                           full_block_cnt=full_counts[None], full_block_idx=full[None],
                           block_size=(case.q_block, case.k_block))
        return {"block_sparse_tensors": lists, "mask_mod": self.causal_mask if case.causal else None,
                "pack_gqa": False}
