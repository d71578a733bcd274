// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_entry.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/logging.h"

namespace ronda {
namespace {

// For more ranks than this, messages contain only their number and the first rank.
constexpr int kListedRanks = 8;

}  // namespace

void LogIfError(RankId rank, const absl::Status& status) {
  if (!status.ok()) Log(LogLevel::kWarning, rank, status.message());
}

void AbortOne(RankId rank, Device& device, const NcclFunctions& nccl, NcclHandle handle) {
  bool is_begun = false;
  const auto abort = [&] {
    is_begun = true;
    nccl.CommAbort(handle);
  };
  // CommAbort must be called even if the device cannot be made current, or memory has run out, because the other ranks'
  // devices wait for this rank.
  const absl::Cleanup in_any_case = [&] {
    if (!is_begun) abort();
  };
  LogIfError(rank, device.Call("aborting an NCCL communicator", [&](const ronda_cuda_plugin&) {
    abort();
    return 0;
  }));
}

std::string NcclGroups::Entry::Name() const {
  if (names_.size() > kListedRanks) return absl::StrCat(names_.size(), " ranks from rank ", names_.front(), " on");
  return absl::StrCat("ranks ", absl::StrJoin(names_.begin(), names_.end() - 1, ", "), " and ", names_.back());
}

bool NcclGroups::Entry::IsOf(const Members& members) const {
  if (members.size() != static_cast<int>(ranks_.size())) return false;
  for (int i = 0; i < members.size(); ++i) {
    if (members[i] != ranks_[static_cast<size_t>(i)]) return false;
  }
  return true;
}

}  // namespace ronda
