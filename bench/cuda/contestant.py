# SPDX-License-Identifier: Apache-2.0
"""What every engine file offers: a class Engine whose prepare(problem) gives a Contestant, or says why it cannot."""

import dataclasses
import importlib
from collections.abc import Callable

import torch


class Unavailable(Exception):
    """This engine is not installed here, or does not do this case; the text says which."""


@dataclasses.dataclass
class Contestant:
    """One engine on one problem. `run` enqueues on the current stream and returns [tokens, q_heads, head_dim]."""

    run: Callable[[], torch.Tensor]
    dense: bool = False  # reads no list and visits every visible pair
    token_causal: bool = True  # cuts inside the diagonal blocks; else visits them whole
    out: torch.Tensor | None = None  # what `run` writes, where the caller gives it
    lse_log2: torch.Tensor | None = None  # [q_heads, tokens] f32, if it gives them
    extra_bytes: int = 0  # of device memory beside q, k, v, out and lse: lists and workspace
    note: str = ""  # stands beside its number

    def run_poisoned(self, like):
        """A run whose output began as NaN; an engine that allocates gets the block that was just poisoned."""
        if self.lse_log2 is not None:
            self.lse_log2.fill_(float("nan"))
        if self.out is not None:
            self.out.fill_(float("nan"))
        else:
            torch.cuda.empty_cache()
            poison = torch.full_like(like, float("nan"))
            del poison
        return self.run()


def need_one_sequence(problem):
    if len(problem.case.lengths) > 1 or problem.case.page:
        raise Unavailable("driven here with one contiguous sequence only")


def need_package(module, package):
    """A word for what is missing instead of an ImportError's."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(f"{package} is not installed ({error})") from None
