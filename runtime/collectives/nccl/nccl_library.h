#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/collectives/nccl/nccl_api.h"

namespace ronda {

// The NCCL of this machine, which stays loaded for good.
struct NcclLibrary {
  NcclFunctions functions;
  std::string path;     // "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
  std::string version;  // "2.28.9"
};

// "2.28.9" for 22809.
std::string NcclVersionText(int version);

// Loads `path` (RONDA_NCCL_LIBRARY) or, if that is empty, libnccl.so.2: from where the loader looks (what the process
// has loaded already is first), then from the CUDA toolkit in `toolkit` (CUDA_HOME) or where toolkits usually are, then
// from where Python's packages have it. Errors: NOT_FOUND that lists the places looked at and says what to do;
// FAILED_PRECONDITION if it is too old, with both versions, lacks a function, or is no NCCL.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> LoadNccl(const std::string& path, const std::string& toolkit = "");

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
