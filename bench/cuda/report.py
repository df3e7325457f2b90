# SPDX-License-Identifier: Apache-2.0
"""The numbers of a case from its readings: rates, ratios and bars; as a table and as records. Pure Python."""

import dataclasses
import math
import statistics
import sys

import results

HEADS = ["engine", "ms", "TFLOP/s", "twice, off by", "ours / it", "error", "note"]
WIDTH = 120  # of a table that goes to no terminal


@dataclasses.dataclass(frozen=True)
class Reading:
    """One engine on one case: the median of each series of rounds; none where it was only checked."""

    engine: str
    case: object  # cases.Case
    flops: int
    density: float
    ms: tuple[float, ...] = ()
    dense: bool = False
    ours: bool = False
    error: float = 0.0  # root mean square, on the sampled rows
    note: str = ""
    extra_bytes: int = 0  # of device memory beside q, k, v, out, lse; ours only

    @property
    def mean_ms(self):
        return statistics.fmean(self.ms) if self.ms else math.nan

    @property
    def tflops(self):
        return tflops(self.flops, self.mean_ms)

    @property
    def spread(self):
        """How far the same call is from itself; a smaller difference between two engines is noise."""
        return (max(self.ms) - min(self.ms)) / self.mean_ms


def tflops(flops, ms):
    return flops / ms / 1e9


def ratios(ours, readings):
    """Rate of `ours` over that of every other engine on its case, of the best dense one, and of the case beside it."""
    found = {other.engine: ours.tflops / other.tflops for other in readings
             if other.case is ours.case and not other.ours}
    dense = [other for other in readings if other.case is ours.case and other.dense and not other.ours]
    if dense:
        best = max(dense, key=lambda other: other.tflops)
        found["best dense"] = ours.tflops / best.tflops
        if not ours.dense:
            found["best dense, in time"] = best.mean_ms / ours.mean_ms
    beside = [other for other in readings if other.engine == ours.engine and other.case is not ours.case]
    if beside:
        found["beside"] = ours.tflops / beside[0].tflops
    return found


def verdicts(ours, found):
    """(what, wanted, got, met) for every bar of the case; got is None where the peer is missing."""
    out = []
    if ours.case.bar_tflops:
        out.append(("TFLOP/s", ours.case.bar_tflops, ours.tflops, ours.tflops >= ours.case.bar_tflops))
    if ours.case.bar_extra_gb:
        gb = ours.extra_bytes / 1e9
        out.append(("extra GB", ours.case.bar_extra_gb, gb, gb < ours.case.bar_extra_gb))
    for name, least in ours.case.bars:
        got = found.get(name)
        out.append((ours.case.beside if name == "beside" else name, least, got, got is not None and got >= least))
    return out


def verdict_text(verdict):
    what, wanted, got, met = verdict
    if got is None:
        return f"over {what} {wanted:g}: not run"
    digits = ".0f" if what == "TFLOP/s" else ".3f"
    over = "" if what in ("TFLOP/s", "extra GB") else "over "
    return f"{over}{what} {got:{digits}}, bar {wanted:g}: {'met' if met else 'MISSED'}"


def rows_of(case, readings):
    """Rows of the table: this case's engines, then those of the case beside it."""
    ours = next((r for r in readings if r.ours and r.case is case), None)
    rows = []
    for r in sorted(readings, key=lambda r: r.case is not case):
        ratio = f"{ours.tflops / r.tflops:.3f}" if ours and r.ms else ""
        timed = [f"{r.mean_ms:.3f}", f"{r.tflops:.0f}"] if r.ms else ["", ""]
        spread = f"{r.spread:.1%}" if len(r.ms) > 1 else ""
        note = ", ".join(filter(None, [r.note, "dense" if r.dense else "", r.case.name if r.case is not case else ""]))
        rows.append([r.engine, *timed, spread, ratio, f"{r.error:.1e}", note])
    return rows


def title_of(case, readings):
    density = next((r.density for r in readings if r.case is case and not r.dense), 1.0)
    keys = f"{case.tokens} keys" + (f" in {len(case.lengths)} sequences" if len(case.lengths) > 1 else "")
    keys += "" if case.kv_dtype == "bf16" else f" in {case.kv_dtype}"
    shared = f", a list for {case.heads_per_list} heads" if case.heads_per_list > 1 else ""
    return (f"{case.name}: {keys}, {case.q_heads}/{case.kv_heads} heads of {case.head_dim}, blocks {case.block}, "
            f"density {density:.3f}{shared}")


def print_table(title, rows, lines):
    """With rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        results.print_plain(title, HEADS, rows)
        print(*lines, sep="\n", end="\n\n" if lines else "\n")
        return
    table = Table(title=title, title_justify="left")
    for i, head in enumerate(HEADS):
        table.add_column(head, justify="right" if 0 < i < len(HEADS) - 1 else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(table)
    for line in lines:
        console.print(line, markup=False, highlight=False)


def records_of(case, readings):
    """`tflops` of every series, and the ratios of each of ours."""
    records = []
    for r in readings:
        params = {"engine": r.engine, "case": r.case.name, "block": r.case.block, "keys": r.case.tokens,
                  "density": r.density, "heads": r.case.q_heads, "kv_heads": r.case.kv_heads,
                  "heads_per_list": r.case.heads_per_list, "head_dim": r.case.head_dim,
                  "kv_dtype": r.case.kv_dtype, "page": r.case.page, "causal": r.case.causal}
        if r.case is not case:
            params["beside"] = case.name
        for run, ms in enumerate(r.ms):
            records.append(results.record("tflops", tflops(r.flops, ms), "TFLOP/s", run=run, ms=ms, **params))
        records.append(results.record("error", r.error, "", **params))
        if r.ours:
            records.append(results.record("extra_bytes", r.extra_bytes, "B", **params))
    for ours in (r for r in readings if r.ours and r.case is case and r.ms):
        for name, value in ratios(ours, readings).items():
            records.append(results.record("ratio", value, "x", engine=ours.engine, case=case.name, over=name))
    return records
