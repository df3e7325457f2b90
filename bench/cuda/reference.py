# SPDX-License-Identifier: Apache-2.0
"""Attention in float32 on sampled rows, straight from their lists, and the check that precedes every timing."""

import math

import torch

SLACK = 2.0  # over the error of plain bf16 on the same lists: rescaling and the order of sums differ
ROUNDING = 1e-5  # the float32 reference's own
LSE_ERROR = {"bf16": 1e-3, "e4m3": 4e-3}  # of base-2 logarithms; sums of e4m3 products keep 13 bits, not float32's


class CheckFailed(Exception):
    """An engine's output is not attention over the lists; the text says where."""


def sampled_rows(case):
    """(q_head, row) pairs: the first rows, a middle one and the last of a few heads, in three sequences at most."""
    heads = sorted({0, case.q_heads // 2, case.q_heads - 1})
    sequences = sorted({0, len(case.lengths) // 2, len(case.lengths) - 1})
    rows, begin = set(), 0
    for i, length in enumerate(case.lengths):
        n = case.rows_of(length)
        if i in sequences:
            rows |= {begin + r for r in (0, min(1, n - 1), n // 2, n - 1)}
        begin += n
    return [(head, row) for head in heads for row in sorted(rows)]


def attend_row(problem, q_head, row, token_causal, dense, plain_bf16=False):
    """The queries' token slice, out [count, head_dim] f32, lse_log2 [count] of one row."""
    case = problem.case
    sequence = max(i for i, begin in enumerate(problem.row_begins[:-1]) if begin <= row)
    start, length = problem.begins[sequence], case.lengths[sequence]
    first = (row - problem.row_begins[sequence]) * case.q_block
    positions = torch.arange(first, min(first + case.q_block, length), device=problem.device)
    if dense:
        keys = torch.arange(int(positions[-1]) + 1 if case.causal else length, device=problem.device)
    else:
        blocks = problem.route.blocks(q_head, row).long()
        keys = (blocks[:, None] * case.k_block + torch.arange(case.k_block, device=problem.device)).flatten()
        keys = keys[keys < length]
    kv_head = q_head // (case.q_heads // case.kv_heads)
    q = problem.q[start + positions, q_head].float()
    k, v = (x[start + keys, kv_head].float() for x in (problem.k, problem.v))
    scores = q @ k.T * (problem.scale * math.log2(math.e))
    if token_causal:
        scores.masked_fill_(keys > positions[:, None], -math.inf)
    top = scores.amax(1, keepdim=True)
    weights = torch.exp2(scores - top)
    total = weights.sum(1, keepdim=True)
    if plain_bf16:
        weights = weights.bfloat16().float()
    out = weights @ v / total
    if plain_bf16:
        out = out.bfloat16().float()
    return slice(start + first, start + first + len(positions)), out, (top + total.log2())[:, 0]


def check(problem, contestant):
    """The root mean square error over the sampled rows; raises CheckFailed."""
    out = contestant.run_poisoned(problem.q)
    if out.shape != problem.q.shape:
        raise CheckFailed(f"out has shape {tuple(out.shape)}; wanted {tuple(problem.q.shape)}")
    if not bool(torch.isfinite(out).all()):
        raise CheckFailed(f"{int((~torch.isfinite(out)).sum())} elements of out are not finite, or were not written")
    squares, peaks, plain_squares, plain_peaks, values = 0.0, [], 0.0, [], 0
    for q_head, row in sampled_rows(problem.case):
        how = (problem, q_head, row, contestant.token_causal, contestant.dense)
        tokens, wanted, lse_log2 = attend_row(*how)
        off = out[tokens, q_head].float() - wanted
        plain = attend_row(*how, plain_bf16=True)[1] - wanted
        squares, plain_squares = squares + float(off.square().sum()), plain_squares + float(plain.square().sum())
        peaks.append((float(off.abs().max()), q_head, row))
        plain_peaks.append(float(plain.abs().max()))
        values += off.numel()
        if contestant.lse_log2 is not None:
            lse_off = float((contestant.lse_log2[q_head, tokens] - lse_log2).abs().max())
            allowed = LSE_ERROR[problem.case.kv_dtype]
            if not lse_off <= allowed:
                raise CheckFailed(f"lse_log2 of head {q_head}, row {row} is off by {lse_off:.3g}; allowed {allowed}")
    error, allowed = math.sqrt(squares / values), SLACK * math.sqrt(plain_squares / values) + ROUNDING
    peak, q_head, row = max(peaks)
    peak_allowed = SLACK * max(plain_peaks) + ROUNDING
    if not (error <= allowed and peak <= peak_allowed):
        raise CheckFailed(f"off by {error:.3g} (allowed {allowed:.3g}), at most by {peak:.3g} (allowed "
                          f"{peak_allowed:.3g}) in head {q_head}, row {row}")
    return error


def check_repeats(contestant):
    """Same input, same bits."""
    first = contestant.run().clone()
    if not torch.equal(first, contestant.run()):
        raise CheckFailed("two runs on the same input differ")
