// SPDX-License-Identifier: Apache-2.0

// Loads NCCL, and declares the part of NCCL's C interface that Ronda uses. Ronda has its own declarations and loads the
// library at run time, so its build needs neither the library nor nccl.h. The numbers are part of NCCL's ABI. If nccl.h
// is installed, a test compares the numbers with it.
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

// Returns whether more calls can follow in a group after a call with this result.
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
  kHostImmediate = 1,                   // read during the call
};

// The oldest supported version. It is the first version that can make communicators without blocking, and can abort a
// communicator while it is being made.
inline constexpr int kOldestNccl = 21400;

// The oldest version whose windows are used (ncclCommWindowRegister). NCCL has windows since 2.27, but before 2.28.7
// its kernels for symmetric memory could damage small messages (NCCL's notes on 2.28.7).
inline constexpr int kOldestWindows = 22807;

// The flag of windows whose memory has the same layout on all ranks (NCCL_WIN_COLL_SYMMETRIC).
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
  // Adds up the ranks' inputs. On rank r, `output` receives `count` elements of the sum, beginning with element r *
  // `count`.
  NcclResult (*ReduceScatter)(const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,
                              NcclHandle comm, void* stream);
  // Makes an operator that multiplies every rank's elements by `*scalar`, and then adds them up. The scalar has the
  // elements' type.
  NcclResult (*RedOpCreatePreMulSum)(NcclRedOp* op, void* scalar, NcclDataType type, NcclScalarResidence residence,
                                     NcclHandle comm);
  NcclResult (*RedOpDestroy)(NcclRedOp op, NcclHandle comm);
  NcclResult (*Send)(const void* data, size_t count, NcclDataType type, int peer, NcclHandle comm, void* stream);
  NcclResult (*Recv)(void* data, size_t count, NcclDataType type, int peer, NcclHandle comm, void* stream);
  // From 2.18 on; nullptr in older versions. NCCL has written `*child` when the parent's state is no longer
  // kInProgress.
  NcclResult (*CommSplit)(NcclHandle comm, int color, int key, NcclHandle* child, void* config);
  // From 2.19 on; nullptr in older versions.
  NcclResult (*MemAlloc)(void** memory, size_t bytes);
  NcclResult (*MemFree)(void* memory);
  NcclResult (*CommRegister)(NcclHandle comm, void* memory, size_t bytes, void** registration);
  NcclResult (*CommDeregister)(NcclHandle comm, void* registration);
  // From kOldestWindows on; nullptr in older versions. Registers memory of MemAlloc. All ranks of the communicator must
  // make this call together, with memory of the same size. `*window` is nullptr if the communicator cannot use windows.
  NcclResult (*CommWindowRegister)(NcclHandle comm, void* memory, size_t bytes, void** window, int flags);
  // This call is local. NCCL must no longer use the window.
  NcclResult (*CommWindowDeregister)(NcclHandle comm, void* window);
};

// The NCCL of this machine. It stays loaded.
struct NcclLibrary {
  NcclFunctions functions;
  std::string path;     // "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
  std::string version;  // "2.28.9"
};

// Returns "2.28.9" for 22809.
std::string NcclVersionText(int version);

// Returns the places where LoadNccl searches, in order. Each place is a file name pattern, or a library name that the
// loader resolves.
std::vector<std::string> NcclPlaces(const std::string& path, const std::string& toolkit, const std::string& python);

// Loads `path` (RONDA_NCCL_LIBRARY) or, if `path` is empty, libnccl.so.2. First the loader searches its own path; if
// the process has already loaded the library, the loader returns it. Then LoadNccl searches the CUDA toolkit in
// `toolkit` (CUDA_HOME), and the packages of the Python environment in `python` (VIRTUAL_ENV). At last LoadNccl
// searches the usual folders of CUDA toolkits and of Python packages. Errors: NOT_FOUND that lists the places searched
// and the remedy; FAILED_PRECONDITION if the library is too old (with both versions), lacks a function, or is not NCCL.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> LoadNccl(const std::string& path, const std::string& toolkit = "",
                                                            const std::string& python = "");

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
