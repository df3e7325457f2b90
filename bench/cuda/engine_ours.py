# SPDX-License-Identifier: Apache-2.0
"""RouteRelay's CUDA attend by ctypes: the one file here that knows its C function, and the form of its arguments."""

import ctypes

import torch

from contestant import Contestant, Unavailable

_c = ctypes
BF16 = 1  # dtype of rr_cuda_attend_args
STRIDES = [f"{name}_{axis}" for name in ("q", "k", "v", "out") for axis in ("token", "head")]
SIZES = ("q_len", "kv_len", "q_heads", "kv_heads", "head_dim", "q_block", "k_block", "dtype", "causal", "q_offset")


class AttendArgs(_c.Structure):
    _fields_ = [("struct_size", _c.c_uint64)]
    _fields_ += [(name, _c.c_void_p) for name in ("q", "k", "v", "out", "lse_log2", "row_offsets", "picked")]
    _fields_ += [(f"{name}_stride", _c.c_int64) for name in STRIDES]
    _fields_ += [(name, _c.c_int32) for name in SIZES]
    _fields_ += [("scale", _c.c_float), ("workspace", _c.c_void_p), ("workspace_bytes", _c.c_uint64)]


class EngineError(RuntimeError):
    """The library is absent, of another version, or refused a call."""


class Engine:
    def __init__(self, library, name="routerelay"):
        self.name = name
        try:
            self.lib = _c.CDLL(str(library))
            self.lib.rr_cuda_attend.argtypes = [_c.POINTER(AttendArgs), _c.c_void_p]
            self.lib.rr_cuda_attend_workspace_bytes.argtypes = [_c.POINTER(AttendArgs)]
            self.lib.rr_cuda_attend_workspace_bytes.restype = _c.c_uint64
            self.lib.rr_last_error.restype = self.lib.rr_version.restype = _c.c_char_p
        except (OSError, AttributeError) as error:
            raise EngineError(f"{error}; build the library of CUDA kernels and name it with --library") from None
        self.version = self.lib.rr_version().decode()

    def prepare(self, problem):
        case = problem.case
        if len(case.lengths) > 1 or case.page:
            raise Unavailable("rr_cuda_attend takes one contiguous sequence")
        out = torch.empty_like(problem.q)
        lse_log2 = torch.empty(case.q_heads, case.tokens, dtype=torch.float32, device=problem.device)
        args = self._args(problem, out, lse_log2)
        workspace = torch.empty(max(1, self.lib.rr_cuda_attend_workspace_bytes(_c.byref(args))), dtype=torch.uint8,
                                device=problem.device)
        args.workspace, args.workspace_bytes = workspace.data_ptr(), workspace.numel()

        def run(_alive=(problem, workspace)):  # what `args` points to lives as long as the call
            stream = torch.cuda.current_stream().cuda_stream
            if self.lib.rr_cuda_attend(_c.byref(args), stream) != 0:
                raise EngineError(self.lib.rr_last_error().decode())
            return out

        return Contestant(run, dense=case.is_dense, token_causal=case.causal, out=out, lse_log2=lse_log2)

    def _args(self, problem, out, lse_log2):
        case, route = problem.case, problem.route
        args = AttendArgs(struct_size=_c.sizeof(AttendArgs), scale=problem.scale, dtype=BF16, causal=int(case.causal),
                          q_len=case.tokens, kv_len=case.tokens, q_heads=case.q_heads, kv_heads=case.kv_heads,
                          head_dim=case.head_dim, q_block=case.q_block, k_block=case.k_block)
        for name, tensor in (("q", problem.q), ("k", problem.k), ("v", problem.v), ("out", out)):
            setattr(args, name, tensor.data_ptr())
            setattr(args, f"{name}_token_stride", tensor.stride(0))
            setattr(args, f"{name}_head_stride", tensor.stride(1))
        args.lse_log2 = lse_log2.data_ptr()
        if route is not None:
            args.row_offsets, args.picked = route.row_offsets.data_ptr(), route.picked.data_ptr()
        return args
