// SPDX-License-Identifier: Apache-2.0
// The binary layouts of ggml that the plug-in touches, as mirrors with frozen offsets. 64-bit Linux only.
//
// ggml promises no plug-in ABI. What is the same in every supported version is a mirror struct; what moved is a
// BackendLayout, chosen by version and verified against the running host before anything is registered
// (handshake.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace routerelay::ggml {

// Host numbers that have not changed under API 2 and 3. Operation numbers do change: host.h resolves them.
inline constexpr int32_t kTypeF32 = 0, kTypeF16 = 1, kTypeQ8_0 = 8, kTypeBF16 = 30;
inline constexpr int32_t kDeviceCpu = 0, kDeviceAccel = 3;
inline constexpr int32_t kFlagInput = 1, kFlagCompute = 16;
inline constexpr int32_t kStatusFailed = -1, kStatusSuccess = 0, kStatusAborted = 1;
inline constexpr int32_t kPrecisionDefault = 0, kPrecisionF32 = 10;

struct Context;     // opaque: ggml_context
struct Graph;       // opaque: ggml_cgraph
struct BufferType;  // opaque: ggml_backend_buffer_type
struct Backend;     // ggml_backend: read and written through BackendLayout only

struct HostTensor {
  int32_t type;
  void* buffer;
  int64_t ne[4];  // elements, innermost first
  size_t nb[4];   // bytes from one to the next
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
  HostTensor* src[10];
  HostTensor* view_src;
  size_t view_offs;
  void* data;
  char name[64];
  void* extra;
  char padding[8];
};
static_assert(sizeof(HostTensor) == 336);
static_assert(offsetof(HostTensor, buffer) == 8 && offsetof(HostTensor, ne) == 16);
static_assert(offsetof(HostTensor, nb) == 48 && offsetof(HostTensor, op) == 80);
static_assert(offsetof(HostTensor, op_params) == 84 && offsetof(HostTensor, flags) == 148);
static_assert(offsetof(HostTensor, src) == 152 && offsetof(HostTensor, view_src) == 232);
static_assert(offsetof(HostTensor, view_offs) == 240 && offsetof(HostTensor, data) == 248);
static_assert(offsetof(HostTensor, name) == 256 && offsetof(HostTensor, extra) == 320);

struct Device;
struct Registry;
using AnyFunction = void (*)();

struct DeviceProps {
  const char* name;
  const char* description;
  size_t memory_free;
  size_t memory_total;
  int32_t type;
  const char* device_id;
  bool caps
      [5];  // async, host_buffer, buffer_from_host_ptr, events; mmap_support lies in the padding of older ones
};
static_assert(sizeof(DeviceProps) == 56 && offsetof(DeviceProps, type) == 32);
static_assert(offsetof(DeviceProps, device_id) == 40 && offsetof(DeviceProps, caps) == 48);

struct DeviceTable {
  const char* (*get_name)(Device*);
  const char* (*get_description)(Device*);
  void (*get_memory)(Device*, size_t* free, size_t* total);
  int32_t (*get_type)(Device*);
  void (*get_props)(Device*, DeviceProps*);
  Backend* (*init_backend)(Device*, const char* params);
  BufferType* (*get_buffer_type)(Device*);
  AnyFunction get_host_buffer_type;  // optional
  AnyFunction buffer_from_host_ptr;  // optional
  bool (*supports_op)(Device*, const HostTensor*);
  bool (*supports_buft)(Device*, BufferType*);
  AnyFunction offload_op;  // optional: nullptr, or the host would move work here that it has elsewhere
  AnyFunction events[3];   // optional
};
static_assert(sizeof(DeviceTable) == 120 && offsetof(DeviceTable, init_backend) == 40);
static_assert(offsetof(DeviceTable, supports_op) == 72 && offsetof(DeviceTable, offload_op) == 88);

struct Device {
  DeviceTable table;
  Registry* registry;
  void* context;
};
static_assert(sizeof(Device) == 136 && offsetof(Device, registry) == 120);

struct RegistryTable {
  const char* (*get_name)(Registry*);
  size_t (*get_device_count)(Registry*);
  Device* (*get_device)(Registry*, size_t index);
  void* (*get_proc_address)(Registry*, const char* name);
};
struct Registry {
  int32_t api_version;
  RegistryTable table;
  void* context;
};
static_assert(sizeof(Registry) == 48 && offsetof(Registry, table) == 8 && offsetof(Registry, context) == 40);

// ggml_backend with its table of functions: kCopies is what two 2D-copy slots in the middle of the table changed.
template <int kCopies>
struct BackendWith {
  const uint8_t* guid;  // 16 bytes
  const char* (*get_name)(Backend*);
  void (*free)(Backend*);
  AnyFunction copies[kCopies];  // optional: set and get, and tensor to tensor
  AnyFunction synchronize;      // optional: nothing is asynchronous here
  AnyFunction graph_plan[4];    // optional
  int32_t (*graph_compute)(Backend*, Graph*);
  AnyFunction events[2];       // optional
  AnyFunction graph_optimize;  // optional; nullptr, since its arguments changed without a new API number
  Device* device;
  void* context;
};
using BackendBefore010 = BackendWith<3>;
using BackendSince010 = BackendWith<5>;

// Where the members lie that differ between ggml versions: offsets in bytes from the start of ggml_backend.
struct BackendLayout {
  size_t bytes;
  size_t graph_compute;
  size_t device;
  size_t context;
};
template <class B>
inline constexpr BackendLayout kLayoutOf = {sizeof(B), offsetof(B, graph_compute), offsetof(B, device),
                                            offsetof(B, context)};
inline constexpr BackendLayout kBackendBefore010 = kLayoutOf<BackendBefore010>;
static_assert(kBackendBefore010.graph_compute == 8 + 80);
static_assert(kBackendBefore010.device == 120 && kBackendBefore010.context == 128);
inline constexpr BackendLayout kBackendSince010 = kLayoutOf<BackendSince010>;
static_assert(kBackendSince010.graph_compute == 8 + 96);
static_assert(kBackendSince010.device == 136 && kBackendSince010.context == 144);
inline constexpr size_t kMaxBackendBytes = 152;
static_assert(kBackendBefore010.bytes <= kMaxBackendBytes && kBackendSince010.bytes <= kMaxBackendBytes);
// get_name and free never moved.
inline constexpr size_t kBackendGuid = 0, kBackendGetName = 8, kBackendFree = 16;
static_assert(offsetof(BackendBefore010, get_name) == kBackendGetName);
static_assert(offsetof(BackendSince010, get_name) == kBackendGetName);
static_assert(offsetof(BackendBefore010, free) == kBackendFree);
static_assert(offsetof(BackendSince010, free) == kBackendFree);

template <class T>
T& member(Backend* backend, size_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(backend) + offset);
}

}  // namespace routerelay::ggml
