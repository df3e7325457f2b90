# SPDX-License-Identifier: Apache-2.0
"""One FLASH_ATTN_EXT node in the host's own CPU back end, laid out as llama.cpp lays out a prompt's attention."""

import ctypes

import numpy as np

_c = ctypes
TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8}  # ggml_type
CPU_DEVICE, PRECISION_F32, STATUS_SUCCESS = 0, 10, 0


class InitParams(_c.Structure):
    _fields_ = [("mem_size", _c.c_size_t), ("mem_buffer", _c.c_void_p), ("no_alloc", _c.c_bool)]


def declare(lib):
    pointer, i32, i64, f32, text = _c.c_void_p, _c.c_int32, _c.c_int64, _c.c_float, _c.c_char_p
    for name, result, *arguments in (
            ("ggml_init", pointer, InitParams), ("ggml_free", None, pointer), ("ggml_get_data", pointer, pointer),
            ("ggml_new_tensor_4d", pointer, pointer, i32, i64, i64, i64, i64),
            ("ggml_permute", pointer, pointer, pointer, i32, i32, i32, i32),
            ("ggml_flash_attn_ext", pointer, pointer, pointer, pointer, pointer, pointer, f32, f32, f32),
            ("ggml_flash_attn_ext_set_prec", None, pointer, i32), ("ggml_new_graph", pointer, pointer),
            ("ggml_build_forward_expand", None, pointer, pointer), ("ggml_backend_free", None, pointer),
            ("ggml_backend_init_by_type", pointer, i32, text), ("ggml_backend_get_device", pointer, pointer),
            ("ggml_backend_dev_backend_reg", pointer, pointer), ("ggml_backend_buffer_free", None, pointer),
            ("ggml_backend_reg_get_proc_address", pointer, pointer, text),
            ("ggml_backend_alloc_ctx_tensors", pointer, pointer, pointer),
            ("ggml_backend_graph_compute", i32, pointer, pointer)):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, list(arguments)


def to_bytes(values, dtype):
    """f32 values as the bytes of a dtype; bf16 rounds to nearest even, q8_0 is blocks of 32."""
    if dtype == "q8_0":
        blocks = values.reshape(-1, 32)
        scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
        steps = np.rint(blocks / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
        return np.concatenate([scales.view(np.int8), steps], axis=1).tobytes()
    if dtype != "bf16":
        return values.astype({"f32": np.float32, "f16": np.float16}[dtype]).tobytes()
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


class CpuBackend:
    """The host's CPU back end with a number of threads."""

    def __init__(self, lib, threads):
        self.lib = lib
        self.pointer = lib.ggml_backend_init_by_type(CPU_DEVICE, None)
        registry = lib.ggml_backend_dev_backend_reg(lib.ggml_backend_get_device(self.pointer))
        address = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
        _c.CFUNCTYPE(None, _c.c_void_p, _c.c_int)(address)(self.pointer, threads)

    def close(self):
        self.lib.ggml_backend_free(self.pointer)


class FlashAttention:
    """The last `queries` of `keys` causal tokens. q, k, v and out are addresses of [tokens, heads, head_dim]."""

    def __init__(self, backend, dtype, queries, keys, q_heads, kv_heads, head_dim):
        self.lib, self.backend = backend.lib, backend
        lib, self.scale = self.lib, head_dim ** -0.5
        self.context = lib.ggml_init(InitParams(1 << 20, None, True))
        new = lambda kind, *shape: lib.ggml_new_tensor_4d(self.context, TYPES[kind], *shape, 1)
        q, k, v = (new("f32", head_dim, q_heads, queries), new(dtype, head_dim, kv_heads, keys),
                   new(dtype, head_dim, kv_heads, keys))
        mask = new("f16", keys, queries, 1)
        by_head = [lib.ggml_permute(self.context, t, 0, 2, 1, 3) for t in (q, k, v)]
        out = lib.ggml_flash_attn_ext(self.context, *by_head, mask, self.scale, 0, 0)
        lib.ggml_flash_attn_ext_set_prec(out, PRECISION_F32)
        self.graph = lib.ggml_new_graph(self.context)
        lib.ggml_build_forward_expand(self.graph, out)
        self.buffer = lib.ggml_backend_alloc_ctx_tensors(self.context, backend.pointer)
        self.q, self.k, self.v, self.out = map(lib.ggml_get_data, (q, k, v, out))
        self.out_shape = (queries, q_heads, head_dim)
        random = np.random.default_rng(1)
        for address, shape, kind in ((self.q, (queries, q_heads), "f32"), (self.k, (keys, kv_heads), dtype),
                                     (self.v, (keys, kv_heads), dtype)):
            data = to_bytes(random.standard_normal((*shape, head_dim), dtype=np.float32), kind)
            _c.memmove(address, data, len(data))
        visible = np.arange(keys)[None, :] <= np.arange(keys - queries, keys)[:, None]
        data = np.where(visible, np.float16(0), np.float16(-np.inf)).tobytes()
        _c.memmove(lib.ggml_get_data(mask), data, len(data))

    def compute(self):
        status = self.lib.ggml_backend_graph_compute(self.backend.pointer, self.graph)
        if status != STATUS_SUCCESS:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}")

    def output(self):
        n = int(np.prod(self.out_shape))
        return np.ctypeslib.as_array((_c.c_float * n).from_address(self.out)).reshape(self.out_shape)

    def close(self):
        self.lib.ggml_backend_buffer_free(self.buffer)
        self.lib.ggml_free(self.context)
