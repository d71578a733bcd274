#include "runtime/control/rendezvous/rank_names.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr size_t kMaxNamedRanks = 16;

}  // namespace

std::string NameRanks(const std::vector<RankId>& ranks) {
  const size_t named = std::min(ranks.size(), kMaxNamedRanks);
  std::string text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                   absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - named, " more");
  return text;
}

}  // namespace ronda
