#include "runtime/launch/rank_names.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

template <typename Item>
std::string Enumerate(absl::string_view noun, const std::vector<Item>& items) {
  constexpr size_t kNamed = 8;
  if (items.size() == 1) return absl::StrCat(noun, " ", items.front());
  const size_t named = items.size() > kNamed ? kNamed : items.size() - 1;
  const std::string first = absl::StrJoin(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (items.size() > kNamed) return absl::StrCat(noun, "s ", first, " and ", items.size() - named, " more");
  return absl::StrCat(noun, "s ", first, " and ", items.back());
}

}  // namespace

std::string NameRanks(const std::vector<RankId>& ranks) { return Enumerate("rank", ranks); }

std::string NameHosts(const std::vector<std::string>& hosts) { return Enumerate("host", hosts); }

}  // namespace ronda
