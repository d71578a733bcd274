#ifndef RONDA_RUNTIME_LAUNCH_TAGGED_OUTPUT_H_
#define RONDA_RUNTIME_LAUNCH_TAGGED_OUTPUT_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"

namespace ronda {

// Takes apart what mpirun prints: pieces of its ranks' output with a mark "[1,RANK]<stdout>:" in front of each, and
// text of its own.
//
// mpirun marks every piece that it gets from a rank, and every line in it; a piece need not end with a line. So a mark
// may stand within a line, and what follows it continues what that rank has printed before. After the end of a line,
// text without a mark is mpirun's own. Open MPI prints such marks with --tag-output, Hydra with
// -prepend-pattern kHydraPattern. A rank that prints such marks itself is misunderstood.
//
// Thread-compatible.
class TaggedOutput {
 public:
  static constexpr absl::string_view kHydraPattern = "[1,%r]<stdout>:";

  // Gets the next bytes of a rank, or of mpirun itself (nullopt); valid during the call only.
  using Emit = absl::FunctionRef<void(std::optional<RankId> rank, absl::string_view bytes)>;

  // Ranks from `rank_count` on are no ranks, and their marks no marks.
  explicit TaggedOutput(int rank_count) : rank_count_(rank_count) {}

  // Takes the next bytes that mpirun has printed.
  void Feed(absl::string_view bytes, Emit emit);

  // There are no more: what could have become a mark is text.
  void Finish(Emit emit);

 private:
  void EmitText(absl::string_view text, Emit emit);

  const int rank_count_;
  std::string held_;              // the beginning of what may be a mark
  std::optional<RankId> source_;  // of what comes next
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_TAGGED_OUTPUT_H_
