// SPDX-License-Identifier: Apache-2.0
#include "reference/reference.h"

namespace routerelay::reference {

const Stages& stages() {
  static constexpr Stages kStages{"reference", summarize, relay, route, attend};
  return kStages;
}

}  // namespace routerelay::reference
