# SPDX-License-Identifier: Apache-2.0
"""cuDNN's dense attention, through PyTorch's scaled_dot_product_attention."""

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from contestant import Contestant, need_one_sequence


class Engine:
    name = "cudnn"

    def prepare(self, problem):
        need_one_sequence(problem)
        q, k, v = problem.heads_first
        causal = problem.case.causal

        def run():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)[0].transpose(0, 1)

        return Contestant(run, dense=True, token_causal=causal)
