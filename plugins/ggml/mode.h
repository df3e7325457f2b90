// SPDX-License-Identifier: Apache-2.0
// What micro-batches go by: at first the variables' preset and options, then whatever a program asks for.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "routerelay/options.hpp"
#include "routerelay/status.hpp"

namespace routerelay::ggml {

// Any thread may ask and set. A micro-batch takes what stands here when it begins, and keeps it; calls that relay
// nothing to each other (masks that are no causal chunk, layers that nobody names) take what stands when each comes.
class Mode {
 public:
  // `keys`: "key=value;key=value" over the preset, or nothing. kInvalidArgument names what is not legal, and then
  // nothing has changed.
  Status set(std::string_view preset, std::string_view keys);
  std::shared_ptr<const Options> now() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Options> options_ = std::make_shared<const Options>();
};

// One per process, never destroyed, like the tally.
Mode& mode();

}  // namespace routerelay::ggml
