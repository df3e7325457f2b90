// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/amx.h"
#include "cpu/isa/peak.h"

namespace routerelay::cpu {

int64_t peak_amx(int64_t iterations) {
  const AmxSession session;
  amx_zero<0>(), amx_zero<1>(), amx_zero<2>(), amx_zero<3>();
  amx_zero<4>(), amx_zero<5>(), amx_zero<6>(), amx_zero<7>();
  for (int64_t i = 0; i < iterations; ++i) {
    // Four independent sums: a product has a latency of 52 cycles and one may start every 16.
    amx_dot<0, 4, 6>();
    amx_dot<1, 4, 7>();
    amx_dot<2, 5, 6>();
    amx_dot<3, 5, 7>();
  }
  return iterations * 4 * (16 * 16 * 32 * 2);
}

}  // namespace routerelay::cpu
