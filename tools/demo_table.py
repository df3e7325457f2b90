# SPDX-License-Identifier: Apache-2.0
"""What the demo measured, as rows, as records and as a table. demo.py says what was run."""

import results

UNITS = {"tokens_per_second": "tokens/s", "speedup": "x", "density": "share", "model_density": "share",
         "loss": "nats/token", "added_loss": "nats/token", "same_tokens": "tokens"}

MOST_OVER_FREE = 1.1  # `free` counts the attention inside the first micro-batch, and moves by some percent


def same_tokens(run, stock):
    """How many of the next tokens agree before the first that differs."""
    pairs = list(zip(run["next_tokens"], stock["next_tokens"]))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def free_tokens_per_second(stock):
    """Stock's speed if attention took no time: depth-0 speed for every token, plus the logits asked for."""
    rows = stock["loss_tokens"] + 1
    seconds = stock["tokens"] * stock["free_seconds_per_token"] + rows * stock["seconds_per_logits_row"]
    return stock["tokens"] / seconds


def seconds_for(run, like):
    """A whole run's seconds for the tokens that `like` took."""
    return sum(run["chunk_seconds"][:len(like["chunk_seconds"])])


def row_of(variant, stock, baseline):
    run = variant.best
    row = {"preset": variant.name if variant.flash == "on" else "stock_flash_off", "label": variant.name,
           "tokens": run["tokens"], "tokens_per_second": run["tokens_per_second"],
           "speedup": seconds_for(baseline, run) / run["seconds"],
           "density": variant.report.get("density", 1.0), "model_density": variant.report.get("model_density", 1.0),
           "taken": variant.report.get("calls"), "delegated": sum(variant.report.get("delegated", {}).values())}
    if variant.ended:
        row |= {"loss": run["loss"], "added_loss": run["loss"] - stock["loss"],
                "same_tokens": same_tokens(run, stock), "text": run["next_text"]}
    return row


def rows_of(chosen):
    """A row per variant, and the limit. The baseline is the faster of stock's modes that took the whole prompt."""
    stock = chosen[0].best
    baseline = min((v.best for v in chosen if not v.plugin and v.ended), key=lambda run: run["seconds"])
    free = free_tokens_per_second(stock)
    return ([row_of(v, stock, baseline) for v in chosen],
            {"tokens_per_second": free, "speedup": free / baseline["tokens_per_second"]})


def doubt(rows, free):
    """Why the speeds cannot be right; empty where they can."""
    fastest = max(rows, key=lambda row: row["speedup"])
    if fastest["speedup"] <= MOST_OVER_FREE * free["speedup"]:
        return ""
    return (f"The speeds are not to be trusted: {fastest['label']} cannot be faster than free attention. Something "
            "else used the machine; run again when it is idle.")


def machine(chosen, threads):
    isa = next((v.report["isa"] for v in chosen if v.report), None)
    return results.machine(threads, isa, chosen[0].best["ggml"])


def print_json(chosen, threads):
    rows, free = rows_of(chosen)
    records = [results.record(name, row[name], unit, preset=row["preset"], tokens=row["tokens"])
               for row in rows for name, unit in UNITS.items() if name in row]
    records += [results.record("free_limit", free[name], UNITS[name], tokens=rows[0]["tokens"], of=name)
                for name in ("tokens_per_second", "speedup")]
    version = next((v.report["version"] for v in chosen if v.report), "")
    results.print_json("demo", version, machine(chosen, threads), records)


def cells_of(row, whole):
    star = "" if row["tokens"] == whole else "*"
    cells = [row["label"], f"{row['tokens_per_second']:.1f}{star}", f"{row['speedup']:.2f}{star}",
             f"{row['density']:.3f}", f"{row['model_density']:.3f}"]
    return cells + ([f"{row['added_loss']:+.4f}", f"{row['same_tokens']}"] if "loss" in row else ["", ""])


def draw(title, heads, cells):
    try:
        import rich.console
        import rich.table
    except ImportError:
        results.print_plain(title, heads, cells)
        return
    table = rich.table.Table(title=title)
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
    for row in cells:
        table.add_row(*row)
    rich.console.Console().print(table)


def print_table(chosen, threads):
    rows, free = rows_of(chosen)
    stock, where = chosen[0].best, machine(chosen, threads)
    cells = [cells_of(row, stock["tokens"]) for row in rows]
    cells.append(["free attention", f"{free['tokens_per_second']:.1f}", f"{free['speedup']:.2f}", "", "", "", ""])
    draw(f"SmolLM2-135M, a prompt of {stock['tokens']} tokens, llama.cpp with ggml {where['ggml']}, "
         f"{threads} threads, {where['isa']} on {where['cpu']}",
         ["", "tokens/s", "speed-up", "density", "of all\nrows", "added\nloss", "same\nnext"], cells)
    print(f"speed-up: over the better of stock's flash attention (fa) on and off; rounds: {len(chosen[0].runs)}, the "
          "fastest counts.\n"
          "density: visited blocks of routed rows, and of every row.\n"
          f"added loss: nats per token over the prompt's last {stock['loss_tokens']} tokens, against stock "
          f"({stock['loss']:.4f}).\n"
          f"same next: of {len(stock['next_tokens'])} greedy tokens, until the first that differs.\n"
          "free attention: the limit, stock's own speed without any attention.")
    if doubt(rows, free):
        print(doubt(rows, free))
    for v in chosen:
        if not v.ended:
            there = v.best["tokens"] / seconds_for(stock, v.best)
            print(f"* stopped after {v.best['tokens']} tokens, when it had lost: stock took those with fa on at "
                  f"{there:.1f} tokens/s. --full lets it end.")
    for row in rows:
        if "text" in row:
            print(f"  {row['label']}: {row['text']!r}")
        if row["delegated"]:
            print(f"    {row['delegated']} attention calls were delegated to the host, {row['taken']} were taken")
