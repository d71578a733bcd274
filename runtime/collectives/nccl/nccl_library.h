// SPDX-License-Identifier: Apache-2.0

// Loads NCCL, and declares the part of NCCL's C interface that Ronda uses. Because Ronda has its own declarations and
// loads the library at run time, its build needs neither the library nor nccl.h. The numbers are part of NCCL's ABI. If
// nccl.h is installed, a test compares them with it.
#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_

#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

// ncclComm_t
using NcclHandle = void*;

// NCCL's ncclUniqueId, which is passed by value.
struct NcclUniqueId {
  char bytes[128];
};

enum class NcclResult : int {  // ncclResult_t
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// Returns whether a group can continue after a call with this result.
inline bool Goes(NcclResult result) { return result == NcclResult::kSuccess || result == NcclResult::kInProgress; }

enum class NcclDataType : int {  // ncclDataType_t
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum class NcclRedOp : int {  // ncclRedOp_t
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
};

enum class NcclScalarResidence : int {  // ncclScalarResidence_t
  kHostImmediate = 1,                   // the scalar is read during the call
};

// The oldest supported version: the first one that can create communicators without blocking, and abort them while they
// are being created.
inline constexpr int kOldestNccl = 21400;

// The oldest version whose windows are used (ncclCommWindowRegister). NCCL has had windows since 2.27, but before
// 2.28.7 its kernels for symmetric memory could corrupt small messages (release notes of NCCL 2.28.7).
inline constexpr int kOldestWindows = 22807;

// The flag for windows whose memory has the same layout on all ranks (NCCL_WIN_COLL_SYMMETRIC).
inline constexpr int kNcclSymmetricWindow = 1;

// A setting with this value lets NCCL choose.
inline constexpr int kNcclUndefined = INT_MIN;

// The value of NcclConfig::cta_policy with which NCCL moves data between windows by the device's copy engines, where
// it can (NCCL_CTA_POLICY_ZERO). Such copies use no multiprocessors.
inline constexpr int kNcclCopyEngines = 2;

// The beginning of ncclConfig_t, as in NCCL 2.28. Earlier versions read only the fields that they know, and later
// versions use their defaults for the rest.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;  // the last version whose fields are set
  int blocking = 0;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* net_name = nullptr;
  // Whether a communicator and its children (ncclCommSplit) share their resources: buffers, connections, and the flag
  // that signals an abort.
  int split_share = kNcclUndefined;
  // NCCL uses the following fields only if `version` is 22800 or later.
  int traffic_class = kNcclUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kNcclUndefined;
  int cta_policy = kNcclUndefined;  // kNcclCopyEngines
  int shrink_share = kNcclUndefined;
  int nvls_ctas = kNcclUndefined;
  int channels_per_net_peer = kNcclUndefined;
  int nvlink_centric_sched = kNcclUndefined;
};

// One entry per function, named as in nccl.h without the prefix.
struct NcclFunctions {
  NcclResult (*GetVersion)(int* version);  // 22809 is 2.28.9
  NcclResult (*GetUniqueId)(NcclUniqueId* id);
  NcclResult (*CommInitRankConfig)(NcclHandle* comm, int ranks, NcclUniqueId id, int rank, void* config);
  NcclResult (*CommGetAsyncError)(NcclHandle comm, NcclResult* async_error);
  NcclResult (*CommFinalize)(NcclHandle comm);
  NcclResult (*CommDestroy)(NcclHandle comm);
  NcclResult (*CommAbort)(NcclHandle comm);
  const char* (*GetErrorString)(NcclResult result);
  const char* (*GetLastError)(NcclHandle comm);
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();
  NcclResult (*AllReduce)(const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,
                          NcclHandle comm, void* stream);
  // Only the root uses `output`.
  NcclResult (*Reduce)(const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op, int root,
                       NcclHandle comm, void* stream);
  NcclResult (*Broadcast)(const void* input, void* output, size_t count, NcclDataType type, int root, NcclHandle comm,
                          void* stream);
  NcclResult (*AllGather)(const void* input, void* output, size_t count, NcclDataType type, NcclHandle comm,
                          void* stream);
  // Reduces the ranks' inputs. On rank r, `output` receives `count` elements of the result, from element r * `count`
  // on.
  NcclResult (*ReduceScatter)(const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,
                              NcclHandle comm, void* stream);
  // Creates an operator that multiplies every rank's elements by `*scalar`, which has the elements' type, and then adds
  // them.
  NcclResult (*RedOpCreatePreMulSum)(NcclRedOp* op, void* scalar, NcclDataType type, NcclScalarResidence residence,
                                     NcclHandle comm);
  NcclResult (*RedOpDestroy)(NcclRedOp op, NcclHandle comm);
  NcclResult (*Send)(const void* data, size_t count, NcclDataType type, int peer, NcclHandle comm, void* stream);
  NcclResult (*Recv)(void* data, size_t count, NcclDataType type, int peer, NcclHandle comm, void* stream);
  // Since 2.18; nullptr in older versions. NCCL has stored `*child` once the parent's state is no longer kInProgress.
  NcclResult (*CommSplit)(NcclHandle comm, int color, int key, NcclHandle* child, void* config);
  // Since 2.19; nullptr in older versions.
  NcclResult (*MemAlloc)(void** memory, size_t bytes);
  NcclResult (*MemFree)(void* memory);
  NcclResult (*CommRegister)(NcclHandle comm, void* memory, size_t bytes, void** registration);
  NcclResult (*CommDeregister)(NcclHandle comm, void* registration);
  // Since kOldestWindows; nullptr in older versions. Registers memory from MemAlloc. All ranks of the communicator must
  // make this call together, with memory of the same size. `*window` is nullptr if the communicator cannot use windows.
  NcclResult (*CommWindowRegister)(NcclHandle comm, void* memory, size_t bytes, void** window, int flags);
  // Local. NCCL must no longer be using the window.
  NcclResult (*CommWindowDeregister)(NcclHandle comm, void* window);
};

// This machine's NCCL, which stays loaded.
struct NcclLibrary {
  NcclFunctions functions;
  std::string path;     // "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
  std::string version;  // "2.28.9"
};

// Returns "2.28.9" for 22809.
std::string NcclVersionText(int version);

// Returns the places where LoadNccl() searches, in order: file name patterns, or library names that the loader
// resolves.
std::vector<std::string> NcclPlaces(const std::string& path, const std::string& toolkit, const std::string& python);

// Loads `path` (RONDA_NCCL_LIBRARY) or, if `path` is empty, libnccl.so.2. Searches the loader's own path first, where
// the loader returns a library that the process has already loaded. Then searches the CUDA toolkit in `toolkit`
// (CUDA_HOME), the packages of the Python environment in `python` (VIRTUAL_ENV), and the usual folders of CUDA toolkits
// and Python packages. Errors: NOT_FOUND that lists the places it searched and the remedy; FAILED_PRECONDITION if the
// library is too old (the text gives both versions), lacks a function, or is not NCCL.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> LoadNccl(const std::string& path, const std::string& toolkit = "",
                                                            const std::string& python = "");

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
