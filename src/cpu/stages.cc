// SPDX-License-Identifier: Apache-2.0
#include "core/stages.h"

#include "cpu/attend/attend.h"
#include "cpu/cpu.h"
#include "cpu/relay/relay.h"
#include "cpu/route/route.h"
#include "cpu/summarize/summarize.h"

namespace routerelay::cpu {

const Stages& stages() {
  static constexpr Stages kStages{"cpu", summarize, relay, route, attend};
  return kStages;
}

}  // namespace routerelay::cpu
