// SPDX-License-Identifier: Apache-2.0
#include "mode.h"

#include <utility>

namespace routerelay::ggml {

Result<Options> options_of(std::string_view preset, std::string_view keys) {
  Result<Options> made = Options::from_preset(preset);
  if (!made.ok()) return made.status();
  RR_TRY(made.value().set_all(keys));
  RR_TRY(made.value().check());
  return made;
}

void Mode::set(Options options) {
  auto next = std::make_shared<const Options>(std::move(options));
  const std::lock_guard lock(mutex_);
  options_.swap(next);
}

std::shared_ptr<const Options> Mode::now() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

Mode& mode() {
  static Mode* const one = new Mode;
  return *one;
}

}  // namespace routerelay::ggml
