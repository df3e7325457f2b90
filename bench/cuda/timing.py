# SPDX-License-Identifier: Apache-2.0
"""Event-timed rounds of several calls in turns, so that whatever the card's clocks do hits all of them."""

import dataclasses
import math
import statistics
from collections.abc import Callable

SPAN_MS = 20.0  # a timed span is about so long: events resolve microseconds
LEAD_MS = 300.0  # and follows so much of the same call: a card at its power limit remembers what ran before
MAX_CALLS = 20  # in one span
MIN_ROUNDS = 3


@dataclasses.dataclass
class Entry:
    """One call, in as many series as it is to be timed; a series is a list of milliseconds per call."""

    call: Callable[[], object]
    series: list[list[float]]


def event_span(call, calls, led_in_by=0):
    """Milliseconds per call, over `calls` of them that follow `led_in_by` more."""
    import torch
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(led_in_by):
        call()
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def plan(spans, n_series, rounds, budget_ms):
    """(calls per span, calls before it) of each entry, and how many rounds the budget holds."""
    calls = [(max(1, min(MAX_CALLS, round(SPAN_MS / ms))), math.ceil(LEAD_MS / ms)) for ms in spans]
    a_round = sum(n * sum(c) * ms for n, c, ms in zip(n_series, calls, spans))
    return calls, min(rounds, max(MIN_ROUNDS, int(budget_ms / a_round)))


def time_in_turns(entries, rounds, seconds, span=event_span):
    """Fills the series: in each round all first ones, then all second ones; every other round runs backwards."""
    spans = [span(entry.call, 1) for entry in entries]
    calls, rounds = plan(spans, [len(entry.series) for entry in entries], rounds, seconds * 1e3)
    order = [(i, s) for s in range(max(len(entry.series) for entry in entries)) for i in range(len(entries))
             if s < len(entries[i].series)]
    for turn in range(rounds):
        for i, s in order[::1 if turn % 2 == 0 else -1]:
            entries[i].series[s].append(span(entries[i].call, *calls[i]))
    return rounds


def medians(series):
    return [statistics.median(times) for times in series if times]
