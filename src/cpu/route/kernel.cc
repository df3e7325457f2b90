// SPDX-License-Identifier: Apache-2.0
#include "cpu/route/kernel.h"

namespace routerelay::cpu {

const SoftmaxKernel& softmax_kernel(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kSoftmaxScalar;
    case Isa::kAvx2:
      return kSoftmaxAvx2;
    case Isa::kAvx512:
      return kSoftmaxAvx512;
    case Isa::kAvx512Bf16:
      return kSoftmaxAvx512Bf16;
    case Isa::kAmxBf16:
      return kSoftmaxAmx;
  }
  return kSoftmaxScalar;
}

const PairKernel& pair_kernel(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kPairScalar;
    case Isa::kAvx2:
      return kPairAvx2;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmxBf16:
      return kPairAvx512;
  }
  return kPairScalar;
}

}  // namespace routerelay::cpu
