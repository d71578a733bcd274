#ifndef RONDA_RUNTIME_CONTROL_TREE_REPORT_BATCH_H_
#define RONDA_RUNTIME_CONTROL_TREE_REPORT_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"

namespace ronda {

// The same message from each of several ranks.
struct SharedReport {
  std::string payload;
  std::vector<RankId> ranks;

  friend bool operator==(const SharedReport&, const SharedReport&) = default;
};

// Reports that wait to travel on to rank 0. Equal ones become one, with the ranks it is from: in a step that all ranks
// report alike, a relay passes on one message, however many ranks are below it.
//
// Of two reports from one rank, the later one is never put before or into one that holds the earlier.
//
// Thread-compatible.
class ReportBatch {
 public:
  // REQUIRES: no rank comes twice in `report`.
  void Add(SharedReport report);

  bool empty() const { return reports_.empty(); }

  // The oldest reports, each with its ranks in ascending order: as many as have at most `max_bytes` of payload
  // together, but one at least. Empty if there are none.
  std::vector<SharedReport> Take(size_t max_bytes);

 private:
  uint64_t next_number() const { return first_number_ + reports_.size(); }
  // The first of all reports that may hold another one from `ranks`.
  uint64_t Earliest(const std::vector<RankId>& ranks) const;
  SharedReport PopFront();

  std::deque<SharedReport> reports_;  // numbered; a deque, so that their payloads stay where they are
  uint64_t first_number_ = 0;         // of reports_.front()
  absl::flat_hash_map<RankId, uint64_t> last_of_rank_;
  absl::flat_hash_map<absl::string_view, uint64_t> last_of_payload_;  // keys lie in reports_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_REPORT_BATCH_H_
