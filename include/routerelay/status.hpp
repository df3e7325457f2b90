// SPDX-License-Identifier: Apache-2.0
// How every call of the library says that it failed: a code and a sentence, never an exception.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace routerelay {

enum class Code : uint8_t {
  kOk,
  kInvalidArgument,  // the caller is wrong
  kUnsupported,      // cannot be done here: ISA, dtype, head_dim
  kOutOfMemory,
  kDeviceError,  // the world failed: files, threads, devices
  kInternal,     // we are wrong; please report
  kAborted,      // the caller's abort callback asked for it
};

// A message has three parts, stage first: what came, what is legal, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the reason why there is none. value() and -> are for a value: ask ok() first. Without NDEBUG they check.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: meant to convert
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: meant to convert

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    assert(ok() && "value() of an error: ask ok() and status()");
    return *value_;
  }
  const T& value() const& {
    assert(ok() && "value() of an error: ask ok() and status()");
    return *value_;
  }
  T&& value() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace routerelay

// Returns early with the status of `expr` when it failed.
#define RR_TRY(expr)                                                             \
  do {                                                                           \
    if (::routerelay::Status rr_tried = (expr); !rr_tried.ok()) return rr_tried; \
  } while (0)
