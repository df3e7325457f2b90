// SPDX-License-Identifier: Apache-2.0
// Device memory of a test, freed with it. Bytes that nobody wrote are 0xff, which is NaN in every float dtype.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace routerelay::cuda {

// What goes wrong in a test's own calls ends the test.
inline void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("cuda: ") + cudaGetErrorString(error));
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t bytes) : bytes_(bytes) {
    must(cudaMalloc(&data_, static_cast<size_t>(bytes_ + kGuard)));
    poison();
  }
  DeviceBuffer(const void* from, int64_t bytes) : DeviceBuffer(bytes) { upload(from, bytes); }
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  void poison() { must(cudaMemset(data_, 0xff, static_cast<size_t>(bytes_ + kGuard))); }
  void upload(const void* from, int64_t bytes) {
    must(cudaMemcpy(data_, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  }
  // All of it, into what has room for that. False if something wrote behind the end.
  bool download(void* to) const {
    std::vector<unsigned char> guard(kGuard);
    must(cudaMemcpy(to, data_, static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost));
    must(cudaMemcpy(guard.data(), static_cast<std::byte*>(data_) + bytes_, kGuard, cudaMemcpyDeviceToHost));
    return guard == std::vector<unsigned char>(kGuard, 0xff);
  }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  static constexpr int64_t kGuard = 1024;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace routerelay::cuda
