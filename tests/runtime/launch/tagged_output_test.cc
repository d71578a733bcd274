#include "runtime/launch/tagged_output.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int kMpirun = -1;

// What each rank printed, and mpirun under kMpirun.
std::map<int, std::string> TakenApart(const std::vector<std::string>& pieces, int rank_count = 4) {
  TaggedOutput output(rank_count);
  std::map<int, std::string> texts;
  const auto collect = [&](std::optional<RankId> rank, absl::string_view bytes) {
    absl::StrAppend(&texts[rank.value_or(kMpirun)], bytes);
  };
  for (const std::string& piece : pieces) output.Feed(piece, collect);
  output.Finish(collect);
  return texts;
}

TEST(TaggedOutputTest, LinesGoToTheirRanks) {
  EXPECT_THAT(TakenApart({"[1,0]<stdout>:a\n[1,3]<stderr>:b\n[1,0]<stddiag>:c\n"}),
              ElementsAre(Pair(0, "a\nc\n"), Pair(3, "b\n")));
}

TEST(TaggedOutputTest, MarkWithinALineChangesTheRank) {
  EXPECT_THAT(TakenApart({"[1,0]<stdout>:half[1,1]<stdout>:other\n[1,0]<stdout>: and half\n"}),
              ElementsAre(Pair(0, "half and half\n"), Pair(1, "other\n")));
}

TEST(TaggedOutputTest, LinesWithoutAMarkAreMpiruns) {
  EXPECT_THAT(TakenApart({"hello\n[1,0]<stdout>:a\n------\nno such host\n[1,1]<stdout>:b\n"}),
              ElementsAre(Pair(kMpirun, "hello\n------\nno such host\n"), Pair(0, "a\n"), Pair(1, "b\n")));
}

TEST(TaggedOutputTest, EmptyLinesAreKept) {
  EXPECT_THAT(TakenApart({"[1,2]<stdout>:\n[1,2]<stdout>:\n"}), ElementsAre(Pair(2, "\n\n")));
}

TEST(TaggedOutputTest, CutsAnywhereMakeNoDifference) {
  const std::string text = "x[y\n[1,0]<stdout>:a[1]\n[1,12]<stderr>:b[12,3[1,1]<stdout>:c\n[1,0]<stdout";
  const std::map<int, std::string> whole = TakenApart({text}, 13);
  EXPECT_THAT(whole,
              ElementsAre(Pair(kMpirun, "x[y\n[1,0]<stdout"), Pair(0, "a[1]\n"), Pair(1, "c\n"), Pair(12, "b[12,3")));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(TakenApart({text.substr(0, cut), text.substr(cut)}, 13), whole) << cut;
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(TakenApart(bytes, 13), whole);
}

TEST(TaggedOutputTest, WhatOnlyLooksLikeAMarkIsText) {
  for (const char* text :
       {"[1,4]<stdout>:x", "[1,]<stdout>:", "[,1]<stdout>:", "[1,1]<stdin>:", "[1,1] <stdout>:", "[[1",
        "[99999999999,1]<stdout>:", "[1,99999999999]<stdout>:", "[1,1]<stdout>x", "[a,1]<stdout>:"}) {
    EXPECT_THAT(TakenApart({text}), ElementsAre(Pair(kMpirun, text))) << text;
  }
}

}  // namespace
}  // namespace ronda
