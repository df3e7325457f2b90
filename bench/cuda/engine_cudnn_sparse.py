# SPDX-License-Identifier: Apache-2.0
"""cuDNN's block-sparse attention from the wheel nvidia-cudnn-frontend. It has no causal mask inside a block."""

import route as routes
from contestant import Contestant, Unavailable, need_one_sequence, need_package


class Engine:
    name = "cudnn-sparse"

    def __init__(self):
        api = need_package("cudnn.block_sparse_attention.api", "nvidia-cudnn-frontend")
        self.forward = api.block_sparse_attention_forward

    def prepare(self, problem):
        need_one_sequence(problem)
        case = problem.case
        if case.is_dense:
            raise Unavailable("takes lists only")
        if case.q_block != case.k_block:
            raise Unavailable("takes square blocks only")
        q, k, v = problem.heads_first
        counts, blocks = (x[None] for x in routes.padded(problem.route))

        def run():
            done = self.forward(q, k, v, blocks, q2k_block_nums=counts, sparse_block_size=case.q_block)
            return done["o_tensor"][0].transpose(0, 1)

        return Contestant(run, token_causal=False, note="no causal mask" if case.causal else "")
