# SPDX-License-Identifier: Apache-2.0
"""One case after the other on the GPU: who takes part, who computes the right thing, and the rounds in turns."""

import dataclasses
import importlib
import sys

import torch

import cases
import contestant
import engine_ours
import problem as problems
import reference
import report
import results
import timing
from engine_ours import EngineError

DENSE_ONLY = ("fa3", "cudnn")


def say(*words):
    print("bench cuda-attend:", *words, file=sys.stderr, flush=True)


class Bench:
    def __init__(self, args):
        if not torch.cuda.is_available():
            raise EngineError("PyTorch sees no GPU")
        torch.set_float32_matmul_precision("highest")  # the reference's products
        self.args, self.left_out, self.failed = args, [], False
        self.ours = [engine_ours.Engine(path, name) for name, path in args.library]
        self.peers = []
        for name in args.peers:
            try:
                self.peers.append(importlib.import_module(f"engine_{name.replace('-', '_')}").Engine())
            except Exception as error:  # a peer that is half installed may raise anything
                self.leave_out(name, "every case", error)

    def leave_out(self, engine, where, why):
        self.left_out.append({"engine": engine, "case": where, "why": str(why)})
        say(f"{where}: without {engine}: {why}")

    def has_failed(self, engine, problem, why, when=""):
        self.failed |= engine in self.ours
        self.leave_out(engine.name, problem.case.name, f"{when}{type(why).__name__}: {str(why)[:400]}")

    def ready(self, problem, peers, is_beside):
        """(engine, contestant, error) of those that do this problem and do it right."""
        for engine in self.ours + peers:
            if is_beside and engine.name in DENSE_ONLY:
                continue  # the same call as on the case itself
            try:
                prepared = engine.prepare(problem)
                if engine in self.ours:
                    prepared.extra_bytes += taken_by_first(prepared.run)
                error = reference.check(problem, prepared)
                if engine in self.ours:
                    reference.check_repeats(prepared)
            except contestant.Unavailable as why:
                self.leave_out(engine.name, problem.case.name, why)
            except Exception as why:  # whatever an engine raises is said, and the others go on
                self.has_failed(engine, problem, why)
            else:
                yield engine, prepared, error

    def run(self, case):
        """The readings of a case and of the one beside it."""
        readings, entries, contestants = [], [], []
        peers = self.peers if case.kv_dtype == "bf16" else []  # none takes e4m3 beside bf16 queries
        for which in filter(None, (case, cases.BY_NAME.get(case.beside))):
            problem = problems.Problem(which)
            for engine, prepared, error in self.ready(problem, peers, is_beside=which is not case):
                in_passing = prepared.dense and not which.is_dense  # the yardstick, not what is measured
                entries.append(timing.Entry(prepared.run, [[] for _ in range(1 if in_passing else 2)]))
                contestants.append((engine, prepared, problem))
                readings.append(report.Reading(
                    engine.name, which, which.dense_flops if prepared.dense else problem.flops,
                    1.0 if prepared.dense else problem.density, dense=prepared.dense, ours=engine in self.ours,
                    error=error, note=prepared.note, extra_bytes=prepared.extra_bytes))
        if not entries or self.args.check:
            return readings
        timing.time_in_turns(entries, self.args.rounds, self.args.seconds)
        return [dataclasses.replace(reading, ms=tuple(timing.medians(entry.series)))
                for reading, entry, checked in zip(readings, entries, contestants) if self.is_still_right(*checked)]

    def is_still_right(self, engine, prepared, problem):
        """What was timed is checked again: nobody may have lost or overwritten a list in between."""
        try:
            reference.check(problem, prepared)
        except Exception as why:
            self.has_failed(engine, problem, why, when="after the timing, ")
            return False
        return True


def taken_by_first(run):
    """Bytes of device memory that are gone after the first run: the driver's, for the kernel."""
    free, _ = torch.cuda.mem_get_info()
    run()
    torch.cuda.synchronize()
    return max(0, free - torch.cuda.mem_get_info()[0])


def machine():
    card = torch.cuda.get_device_properties(0)
    return {"gpu": card.name, "multiprocessors": card.multi_processor_count, "memory_bytes": card.total_memory,
            "torch": torch.__version__, "cuda": torch.version.cuda, "cpu": results.cpu_name()}
