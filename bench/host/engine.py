# SPDX-License-Identifier: Apache-2.0
"""RouteRelay's engine by ctypes, through the C ABI of include/routerelay/routerelay.h: one exact layer at a time."""

import ctypes

_c = ctypes
RR_OK, RR_DEVICE_CPU, RR_FLOAT, RR_BFLOAT, RR_Q8_0 = 0, 1, 2, 4, 128
DTYPES = {"f32": (RR_FLOAT, 32), "f16": (RR_FLOAT, 16), "bf16": (RR_BFLOAT, 16), "q8_0": (RR_Q8_0, 8)}
ABI_MAJOR = 1


class EngineArgs(_c.Structure):
    _fields_ = [("struct_size", _c.c_uint32), ("flags", _c.c_uint32), ("backend", _c.c_char_p),
                ("isa", _c.c_char_p), ("threads", _c.c_int32)]


class EngineInfo(_c.Structure):
    _fields_ = [("struct_size", _c.c_uint32), ("flags", _c.c_uint32), ("backend", _c.c_char_p),
                ("isa", _c.c_char_p), ("threads", _c.c_int32)]


class Tensor(_c.Structure):
    _fields_ = [("data", _c.c_void_p), ("device_type", _c.c_int32), ("device_id", _c.c_int32), ("ndim", _c.c_int32),
                ("dtype_code", _c.c_uint8), ("dtype_bits", _c.c_uint8), ("dtype_lanes", _c.c_uint16),
                ("shape", _c.POINTER(_c.c_int64)), ("strides", _c.POINTER(_c.c_int64)), ("byte_offset", _c.c_uint64)]


class LayerArgs(_c.Structure):
    _fields_ = [("struct_size", _c.c_uint32), ("flags", _c.c_uint32)]
    _fields_ += [(name, _c.POINTER(Tensor)) for name in ("q", "k", "v", "out")]
    _fields_ += [("lse_log2", _c.c_void_p), ("sequences", _c.c_void_p), ("n_sequences", _c.c_int64),
                 ("scale", _c.c_float), ("layer", _c.c_int32)]


class EngineError(RuntimeError):
    """The library is absent, of another version, or refused a call."""


def tensor(data, dtype, tokens, heads, head_dim):
    """A contiguous [tokens, heads, head_dim] array at address `data`."""
    code, bits = DTYPES[dtype]
    return Tensor(data, RR_DEVICE_CPU, 0, 3, code, bits, 1, (_c.c_int64 * 3)(tokens, heads, head_dim), None, 0)


class Engine:
    def __init__(self, library, threads, isa=None):
        try:
            self.lib = _c.CDLL(str(library))
        except OSError as error:
            raise EngineError(f"{error}; build the target routerelay") from None
        self.lib.rr_last_error.restype = self.lib.rr_version.restype = _c.c_char_p
        if self.lib.rr_abi_version() >> 16 != ABI_MAJOR:
            raise EngineError(f"ABI {self.lib.rr_abi_version() >> 16}; this script knows {ABI_MAJOR}")
        self.engine = _c.c_void_p()
        args = EngineArgs(_c.sizeof(EngineArgs), 0, None, isa.encode() if isa else None, threads)
        self._call(self.lib.rr_engine_create, _c.byref(args), _c.byref(self.engine))
        info = EngineInfo(_c.sizeof(EngineInfo))
        self._call(self.lib.rr_engine_get_info, self.engine, _c.byref(info))
        self.isa, self.version = info.isa.decode(), self.lib.rr_version().decode()

    def _call(self, function, *arguments):
        if function(*arguments) != RR_OK:
            raise EngineError(self.lib.rr_last_error().decode())

    def attend(self, q, k, v, out, scale):
        """A pass of one exact layer: the queries sit at the end of the keys, each sees the keys up to its own."""
        done = _c.c_void_p()
        self._call(self.lib.rr_pass_begin, self.engine, None, None, _c.byref(done))
        args = LayerArgs(_c.sizeof(LayerArgs), 0, *map(_c.pointer, (q, k, v, out)), None, None, 0, scale, 0)
        try:
            self._call(self.lib.rr_pass_layer, done, _c.byref(args))
        finally:
            self.lib.rr_pass_end(done)
