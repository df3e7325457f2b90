// SPDX-License-Identifier: Apache-2.0
#include "cuda/isa/device.h"

#include <fmt/format.h>

#include <atomic>

namespace routerelay::cuda {
namespace {

// A plain pointer to a function would, as a parameter named `value`, shadow Result's function of that name.
struct MapEncoder {
  decltype(&cuTensorMapEncodeTiled) encode = nullptr;
};

// From the driver by name, so that a program without a GPU can load the library.
Result<MapEncoder> map_encoder() {
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  RR_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault,
                                           &found));
  if (found != cudaDriverEntryPointSuccess)
    return Status(Code::kUnsupported, "attend: the driver has no cuTensorMapEncodeTiled; it needs CUDA 12.0");
  return MapEncoder{reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)};
}

}  // namespace

Status device_status(cudaError_t error, const char* step) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is told here, and nobody else is to find it
  return {Code::kDeviceError, fmt::format("cuda: {} failed: {}", step, cudaGetErrorString(error))};
}

Result<Device> current_device() {
  int id = 0, major = 0, minor = 0;
  Device device;
  RR_CUDA(cudaGetDevice(&id));
  RR_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id));
  RR_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id));
  RR_CUDA(cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id));
  device.compute_capability = major * 10 + minor;
  return device;
}

Status make_tensor_map(const Tensor& tensor, int64_t page_tokens, int64_t page_stride, int box_tokens,
                       CUtensorMap& map) {
  static std::atomic<decltype(MapEncoder::encode)> known = nullptr;
  auto encode = known.load();
  if (encode == nullptr) {
    const auto found = map_encoder();
    RR_TRY(found.status());
    known = encode = found.value().encode;
  }
  constexpr int kBoxBytes = 128;
  const auto element_bytes = static_cast<cuuint64_t>(bytes_of(tensor.dtype, 1));
  // The encoder judges also the stride of an axis of one, which may be anything.
  const auto stride = [&](int64_t elements, int64_t count) {
    return static_cast<cuuint64_t>(count > 1 ? elements : tensor.head_dim) * element_bytes;
  };
  const int64_t pages = tensor.tokens / page_tokens;
  const auto size_of = [](int64_t count) { return static_cast<cuuint64_t>(count); };
  const cuuint64_t size[4] = {size_of(tensor.head_dim), size_of(page_tokens), size_of(tensor.heads),
                              size_of(pages)};
  const cuuint64_t strides[3] = {stride(tensor.token_stride, page_tokens),
                                 stride(tensor.head_stride, tensor.heads), stride(page_stride, pages)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(kBoxBytes / element_bytes),
                             static_cast<cuuint32_t>(box_tokens), 1, 1},
                   step[4] = {1, 1, 1, 1};
  const CUtensorMapDataType type = tensor.dtype == DType::kBF16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : tensor.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const CUresult result = encode(&map, type, 4, const_cast<std::byte*>(tensor.data), size, strides, box, step,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return {Code::kDeviceError,
            fmt::format("cuda: cuTensorMapEncodeTiled failed with {}", static_cast<int>(result))};
  return {};
}

}  // namespace routerelay::cuda
