# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 3, dense, from the wheel fa3-fwd; ragged batches through its varlen entry."""

from contestant import Contestant, Unavailable, need_package


class Engine:
    name = "fa3"

    def __init__(self):
        self.fa3 = need_package("fa3_fwd_interface", "fa3-fwd")

    def prepare(self, problem):
        case = problem.case
        if case.page:
            raise Unavailable("timed on the contiguous cache")
        q, k, v = problem.q, problem.k, problem.v
        if len(case.lengths) == 1:
            call = lambda: self.fa3.flash_attn_func(q[None], k[None], v[None], causal=case.causal)
        else:
            cu, longest = problem.cu_seqlens, max(case.lengths)
            call = lambda: self.fa3.flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, causal=case.causal)
        return Contestant(lambda: first(call()).view(q.shape), dense=True, token_causal=case.causal)


def first(result):
    """Releases of the wheel differ in whether the sums come along."""
    return result[0] if isinstance(result, tuple) else result
