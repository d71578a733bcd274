#include "runtime/launch/start_mark.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

// What is left of `pieces` when the mark has been taken out.
std::string OwnOutput(const std::vector<std::string>& pieces, StartMarkReader* reader) {
  std::string own;
  const auto append = [&](absl::string_view bytes) { absl::StrAppend(&own, bytes); };
  for (const std::string& piece : pieces) reader->Feed(piece, append);
  reader->Finish(append);
  return own;
}

TEST(StartMarkTest, CommandIsLedByAShellThatBecomesIt) {
  EXPECT_THAT(WithStartMark({"./train", "two words"}),
              ElementsAre("/bin/sh", "-c", "echo ronda-start $$ >&2; exec \"$@\"", "rondarun", "./train", "two words"));
}

TEST(StartMarkTest, ReaderUnderstandsWhatTheShellPrints) {
  const std::string script = WithStartMark({})[2];
  FILE* const pipe = popen(absl::StrCat("exec 2>&1; set -- sh -c 'echo own $$'; ", script).c_str(), "re");
  ASSERT_NE(pipe, nullptr);
  std::string output(100, '\0');
  output.resize(fread(output.data(), 1, output.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  StartMarkReader reader;
  const std::string own = OwnOutput({output}, &reader);
  ASSERT_TRUE(reader.pid().has_value()) << output;
  EXPECT_EQ(own, absl::StrCat("own ", *reader.pid(), "\n"));
}

TEST(StartMarkTest, MarkMayComeInPieces) {
  const std::string text = "ronda-start 4711\nronda-start 1\n";
  for (size_t at = 0; at <= text.size(); ++at) {
    StartMarkReader reader;
    EXPECT_EQ(OwnOutput({text.substr(0, at), text.substr(at)}, &reader), "ronda-start 1\n") << "cut at " << at;
    EXPECT_EQ(reader.pid(), 4711);
  }
}

TEST(StartMarkTest, OutputWithoutAMarkIsTheRanksOwn) {
  for (const std::string text : {"", "r", "ronda-start ", "ronda-start x\n", "ronda-start 12", "ronda-starts 12\n",
                                 "ronda-start 123456789012345\n", "hello\nronda-start 12\n", "\nronda-start 12\n"}) {
    StartMarkReader reader;
    EXPECT_EQ(OwnOutput({text}, &reader), text);
    EXPECT_EQ(reader.pid(), std::nullopt);
  }
}

TEST(StartMarkTest, NothingIsHeldBackThatCannotBeTheMark) {
  StartMarkReader reader;
  std::string own;
  reader.Feed("ronda: half a line", [&](absl::string_view bytes) { absl::StrAppend(&own, bytes); });
  EXPECT_EQ(own, "ronda: half a line");
}

}  // namespace
}  // namespace ronda
