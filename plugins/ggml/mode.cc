// SPDX-License-Identifier: Apache-2.0
#include "mode.h"

#include <utility>

#include "tally.h"

namespace routerelay::ggml {
namespace {

Result<Options> options_of(std::string_view preset, std::string_view keys) {
  Result<Options> made = Options::from_preset(preset);
  if (!made.ok()) return made.status();
  RR_TRY(made.value().set_all(keys));
  RR_TRY(made.value().check());
  return made;
}

}  // namespace

Status Mode::set(std::string_view preset, std::string_view keys) {
  Result<Options> made = options_of(preset, keys);
  if (!made.ok()) return made.status();
  auto next = std::make_shared<const Options>(std::move(made).value());
  const std::lock_guard lock(mutex_);
  tally().goes_by(next->preset);
  options_.swap(next);
  return {};
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
