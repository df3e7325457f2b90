# SPDX-License-Identifier: Apache-2.0
"""RouteRelay's CUDA attend by ctypes: the one file here that knows its C function, and the form of its arguments."""

import ctypes

import torch

from contestant import Contestant, Unavailable

_c = ctypes
CUDA, CAUSAL = 2, 1  # of rr_tensor and rr_cuda_attend_args
DTYPES = {torch.bfloat16: (4, 16), torch.float8_e4m3fn: (10, 8)}  # code and bits


class Tensor(_c.Structure):
    """rr_tensor over a torch tensor [tokens, heads, head_dim], which it keeps alive."""

    _fields_ = [("data", _c.c_void_p), ("device_type", _c.c_int32), ("device_id", _c.c_int32), ("ndim", _c.c_int32),
                ("dtype_code", _c.c_uint8), ("dtype_bits", _c.c_uint8), ("dtype_lanes", _c.c_uint16),
                ("shape", _c.POINTER(_c.c_int64)), ("strides", _c.POINTER(_c.c_int64)), ("byte_offset", _c.c_uint64)]

    @classmethod
    def of(cls, tensor):
        three = _c.c_int64 * 3
        code, bits = DTYPES[tensor.dtype]
        made = cls(data=tensor.data_ptr(), device_type=CUDA, device_id=tensor.device.index or 0, ndim=3,
                   dtype_code=code, dtype_bits=bits, dtype_lanes=1, shape=three(*tensor.shape),
                   strides=three(*tensor.stride()))
        made.tensor = tensor
        return made


class AttendArgs(_c.Structure):
    _fields_ = [("struct_size", _c.c_uint32), ("flags", _c.c_uint32)]
    _fields_ += [(name, _c.POINTER(Tensor)) for name in ("q", "k", "v", "out")]
    _fields_ += [("lse_log2", _c.c_void_p), ("sequences", _c.c_void_p), ("n_sequences", _c.c_int64),
                 ("n_rows", _c.c_int64), ("row_offsets", _c.c_void_p), ("picked", _c.c_void_p),
                 ("q_block", _c.c_int32), ("k_block", _c.c_int32), ("scale", _c.c_float), ("list_heads", _c.c_int64),
                 ("page_table", _c.c_void_p), ("max_pages", _c.c_int64), ("page_stride", _c.c_int64),
                 ("page_size", _c.c_int32), ("k_scale", _c.c_void_p), ("v_scale", _c.c_void_p)]


class EngineError(RuntimeError):
    """The library is absent, of another version, or refused a call."""


class Engine:
    def __init__(self, library, name="routerelay"):
        self.name = name
        try:
            self.lib = _c.CDLL(str(library))
            args, workspace = _c.POINTER(AttendArgs), [_c.c_void_p, _c.c_int64]
            self.lib.rr_cuda_attend.argtypes = [args, *workspace, _c.c_void_p]
            self.lib.rr_cuda_attend_workspace_bytes.argtypes = [args, _c.POINTER(_c.c_int64)]
            self.lib.rr_cuda_last_error.restype = self.lib.rr_cuda_version.restype = _c.c_char_p
        except (OSError, AttributeError) as error:
            raise EngineError(f"{error}; build the library of CUDA kernels and name it with --library") from None
        self.version = self.lib.rr_cuda_version().decode()

    def prepare(self, problem):
        case = problem.case
        if case.page and problem.cache is not None:
            raise Unavailable("e4m3 keys and values are timed where they are contiguous")
        out = torch.empty_like(problem.q)
        lse_log2 = torch.empty(case.q_heads, case.tokens, dtype=torch.float32, device=problem.device)
        args = self._args(problem, out, lse_log2)
        needed = _c.c_int64()
        self._check(self.lib.rr_cuda_attend_workspace_bytes(_c.byref(args), _c.byref(needed)))
        workspace = torch.empty(needed.value, dtype=torch.uint8, device=problem.device)

        def run(_alive=problem):  # what `args` points to lives as long as the call
            stream = torch.cuda.current_stream().cuda_stream
            self._check(self.lib.rr_cuda_attend(_c.byref(args), workspace.data_ptr(), workspace.numel(), stream))
            return out

        route = problem.route
        lists = [route.row_offsets, route.picked] if route is not None else []
        return Contestant(run, dense=case.is_dense, token_causal=case.causal, out=out, lse_log2=lse_log2,
                          extra_bytes=sum(x.nbytes for x in (workspace, *lists)))

    def _check(self, status):
        if status != 0:
            raise EngineError(self.lib.rr_cuda_last_error().decode())

    def _args(self, problem, out, lse_log2):
        case, route = problem.case, problem.route
        args = AttendArgs(struct_size=_c.sizeof(AttendArgs), flags=CAUSAL if case.causal else 0, scale=problem.scale,
                          q_block=case.q_block, k_block=case.k_block, lse_log2=lse_log2.data_ptr())
        k, v = problem.k, problem.v
        if case.page:
            k, v, table = problem.pages
            args.page_table, args.max_pages, args.page_size = table.data_ptr(), table.shape[1], case.page
            k, v = k.flatten(0, 1), v.flatten(0, 1)
        if problem.cache is not None:
            k, v = (side.data for side in problem.cache)
            args.k_scale, args.v_scale = (side.scale.data_ptr() for side in problem.cache)
        if case.page or len(case.lengths) > 1:
            args.sequences, args.n_sequences = problem.sequences.data_ptr(), len(case.lengths)
            args.n_rows = case.n_rows
        for name, tensor in (("q", problem.q), ("k", k), ("v", v), ("out", out)):
            setattr(args, name, _c.pointer(Tensor.of(tensor)))
        if route is not None:
            args.row_offsets, args.picked = route.row_offsets.data_ptr(), route.picked.data_ptr()
            args.list_heads = route.heads
        return args
