# SPDX-License-Identifier: Apache-2.0
"""Loads the plug-in into a llama.cpp that runs inside Python: llama-cpp-python or xllamacpp.

    import llama_cpp
    import routerelay.llama

    loaded = routerelay.llama.load(preset="balanced")  # before the first model
    print(loaded)
    model = llama_cpp.Llama("model.gguf", n_ctx=32768, n_batch=512, flash_attn=True)
    loaded.check(model)                                # raises where flash attention is off
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _hosts, _plugin
from .errors import (AlreadyLoaded, FlashAttentionOff, HostMissing, LoadError, ModelAlreadyLoaded, PluginMissing,
                     PluginRefused)

__all__ = ["AlreadyLoaded", "FlashAttentionOff", "HostMissing", "LoadError", "Loaded", "ModelAlreadyLoaded",
           "PluginMissing", "PluginRefused", "load"]

OURS = "routerelay: "  # how the plug-in's lines begin
REFUSAL = f"{OURS}not used: "
FLASH_OFF = 0  # llama_flash_attn_type: -1 automatic, 1 on
HINTS = {"llama_cpp": "llama-cpp-python leaves flash attention off unless told: Llama(..., flash_attn=True)",
         "xllamacpp": "flash attention is automatic in xllamacpp: leave flash_attn_type at -1, or set 1"}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What load() did. Printed, it says all of it, and the preset of now."""

    host: str             # package and version
    ggml: str             # the host's version of ggml
    preset: str           # at load
    plugin: pathlib.Path
    active: bool          # False: the preset is off and the host runs as if we were not there
    said: str             # the line at load, the plug-in's or the host's
    notes: tuple[str, ...]  # what it does without, and what may still keep it idle
    _entry: tuple[_hosts.Ggml, int] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        now = self.report()["now"] if self.active else self.preset
        lines = [f"routerelay {'in' if self.active else 'off in'} {self.host} (ggml {self.ggml}): "
                 f"preset {now}, {self.plugin}", *(f"  note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def report(self) -> dict[str, Any]:
        """What the plug-in did so far: the table in docs/llama.md. LoadError where it is not active."""
        return self._control().report()

    def use(self, preset: str, options: str | Mapping[str, object] = "") -> None:
        """Another preset for every micro-batch that begins from now on, in every context; the caches stay as they are.

        options: over this preset, none of those that load() was given. ValueError or TypeError names what is not legal,
        and then nothing has changed. LoadError where the plug-in is not active.
        """
        self._control().use(preset, options)

    def _control(self) -> _plugin.Control:
        if self._entry is None:
            raise LoadError(f"the plug-in is not active in {self.host}: preset is '{self.preset}'")
        return _plugin.Control(*self._entry)

    def check(self, model: object) -> None:
        """Raises FlashAttentionOff where a `llama_cpp.Llama` or an `xllamacpp.CommonParams` leaves it off."""
        flash = getattr(getattr(model, "context_params", model), "flash_attn_type", None)
        if flash is None:
            raise TypeError(f"model is a {type(model).__name__}; legal: llama_cpp.Llama, xllamacpp.CommonParams")
        if int(flash) == FLASH_OFF:
            raise FlashAttentionOff("flash attention is off, so that the plug-in gets no work; pass flash_attn=True "
                                    "(llama-cpp-python) or set flash_attn_type to -1 or 1 (xllamacpp)")


@contextlib.contextmanager
def _variables(texts: dict[str, str]) -> Iterator[None]:
    """Set while the plug-in reads them, and as they were afterwards: children must not inherit them."""
    before = {name: os.environ.get(name) for name in texts}
    try:
        os.environ.update(texts)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _listening(said: list[str]) -> Iterator[None]:
    """Collects what is written to stderr, by C too."""
    with contextlib.ExitStack() as afterwards:  # last in, first out
        heard = os.memfd_create("routerelay")
        afterwards.callback(os.close, heard)
        afterwards.callback(lambda: said.extend(_content(heard).decode(errors="replace").splitlines()))
        try:
            kept = os.dup(2)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            afterwards.callback(os.close, 2)  # a process without stderr has none afterwards either
        else:
            afterwards.callback(os.close, kept)
            afterwards.callback(os.dup2, kept, 2)
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, no file, closed
            sys.stderr.flush()
        os.dup2(heard, 2)
        yield


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


def _pass_on(lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    with contextlib.suppress(OSError):  # no stderr
        os.write(2, text.encode(errors="replace"))


def _why(said: list[str], *, active: bool) -> str:
    """The plug-in's line; else the host's last word, as of a file that is no plug-in, or one that it refuses itself."""
    ours = [line for line in said if line.startswith(OURS if active else REFUSAL)]
    return (ours[:1] or said[-1:] or ["it gave no reason"])[0].removeprefix(OURS)


_lock = threading.Lock()  # stderr and the variables are the process's
_done: tuple[object, Loaded] | None = None


def load(host: str | None = None, plugin: str | os.PathLike[str] | None = None, *,
         allow_loaded_model: bool = False, **options: object) -> Loaded:
    """Loads the plug-in into a host, before the first model, and says what it did.

    host: `llama_cpp` (or `llama-cpp-python`) or `xllamacpp`; None: the one that is imported, else installed.
    plugin: the shared object; None: $ROUTERELAY_PLUGIN, $GGML_BACKEND_PATH, beside the package, build/release/lib.
    allow_loaded_model: load all the same after a model; contexts made from then on use the plug-in.
    options: preset, options, min_rows, min_kv, threads, isa, backend, report, trace, trace_layers, allow_untested:
    each stands for the variable ROUTERELAY_<NAME>, which it overrides (docs/llama.md).

    The same call again returns the same object; other arguments raise AlreadyLoaded.
    """
    global _done
    with _lock:
        texts = _plugin.variables_of(options)
        module = _hosts.choose(host)
        path = _plugin.find_plugin(plugin)
        arguments = (module, path, tuple(sorted(texts.items())))
        if _done is None:
            found = None if allow_loaded_model else _hosts.loaded_model()
            if found is not None:
                raise ModelAlreadyLoaded(f"{found}: load the plug-in before the first model, or pass "
                                         "allow_loaded_model=True to use it in contexts made from now on")
            _done = (arguments, _load(module, path, texts))
        elif _done[0] != arguments:
            raise AlreadyLoaded(f"{_done[1].plugin} is already in {_done[1].host}, loaded with other arguments; "
                                "the plug-in reads them once a process; use() changes preset and options")
        return _done[1]


def _load(module: str, path: pathlib.Path, texts: dict[str, str]) -> Loaded:
    ggml = _hosts.Ggml(module)
    said: list[str] = []
    try:
        with _variables(texts), _listening(said):
            preset = os.environ.get("ROUTERELAY_PRESET") or "exact"
            registry = ggml.load(path)
            active = registry is not None
    except BaseException:  # Ctrl-C too: what was said so far stays said
        _pass_on(said)
        raise
    said = [_plugin.in_keywords(line, texts) if line.startswith(OURS) else line for line in said]
    # A refusal's lines are in the exception, and "off" is in what is returned.
    _pass_on(line for line in said if active or not (line.startswith(OURS) or str(path) in line))
    if not active and preset != "off":
        raise PluginRefused(f"{ggml.package} (ggml {ggml.version}) did not take {path}: {_why(said, active=False)}")
    if active and not any(OURS in line for line in said):  # it speaks once a process, when it reads its variables
        raise AlreadyLoaded(f"{path} was already loaded in this process by something else, such as GGML_BACKEND_PATH "
                            "or this module before a reload; its preset stays, and report() and use() are not "
                            "reachable from here; load it once a process, by load()")
    # Lines after the one at load: what it does without, such as a report that cannot be written.
    notes = [line.removeprefix(OURS) for line in said if line.startswith(OURS)][1:] if active else []
    if active:
        notes.append(HINTS[module])
    if active and ggml.has_gpu():
        notes.append("the host has a GPU: work that it takes is not ours; keep the model on the CPU (n_gpu_layers=0)")
    return Loaded(ggml.package, ggml.version, preset, path, active, _why(said, active=active), tuple(notes),
                  (ggml, registry) if registry is not None else None)
