#include "runtime/engine/device/agreement.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/device_transport.h"

namespace ronda {
namespace {

// Of fixed length, as all ranks must know how much the others send.
struct Statement {
  char can = 0;
  char reason[511] = {};
  char facts[DeviceSupport::kLongestFacts + 1] = {};
};

template <size_t kSize>
void Fill(absl::string_view text, char (&field)[kSize]) {
  text.copy(field, kSize - 1);
}

template <size_t kSize>
std::string TextOf(const char (&field)[kSize]) {
  return std::string(field, strnlen(field, kSize));
}

}  // namespace

absl::StatusOr<Agreement> AgreeWithAll(Communicator& host, const CallInfo& info, const absl::Status& own,
                                       const std::string& facts) {
  Statement statement;
  statement.can = own.ok() ? 1 : 0;
  Fill(own.message(), statement.reason);
  Fill(facts, statement.facts);
  std::vector<Statement> all(static_cast<size_t>(host.size()));
  const std::vector<size_t> bytes_per_rank(all.size(), sizeof(Statement));
  CallInfo whole = info;
  whole.group = nullptr;
  whole.ballot = nullptr;
  RONDA_RETURN_IF_ERROR(
      host.Allgather({.info = whole, .input = &statement, .output = all.data(), .bytes_per_rank = bytes_per_rank}));
  Agreement agreement;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    agreement.facts.push_back(TextOf(all[rank].facts));
    if (all[rank].can != 0 || !agreement.refusal.ok()) continue;
    agreement.refusal = absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " cannot take part with tensors in the memory of GPUs: ", TextOf(all[rank].reason)));
  }
  return agreement;
}

}  // namespace ronda
