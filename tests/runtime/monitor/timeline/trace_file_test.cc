#include "runtime/monitor/timeline/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kPlenty = 1 << 20;

std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Element(const std::string& name) {
  return absl::StrCat(R"({"ph":"i","pid":0,"tid":1,"ts":1,"name":")", name, "\"}");
}

TEST(TraceFileTest, IsAnArrayWhateverEndItHadBefore) {
  const std::string path = Path("array.json");
  auto file = TraceFile::Create(path, kPlenty);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(Element("first"), "").ok());
  size_t count = 1;
  for (const size_t unfinished : {3, 0, 40, 2, 0, 1}) {
    std::string end;
    for (size_t i = 0; i < unfinished; ++i) absl::StrAppend(&end, ",", Element("unfinished"));
    ASSERT_TRUE((*file)->Write("," + Element("more"), end).ok());
    ++count;
    const auto events = ReadTraceFile(path);
    ASSERT_TRUE(events.has_value()) << Content(path);
    EXPECT_THAT(*events, SizeIs(count + unfinished));
    EXPECT_THAT(Named(*events, "more"), SizeIs(count - 1));
  }
}

TEST(TraceFileTest, ReplacesWhatIsThere) {
  const std::string path = Path("replaced.json");
  std::ofstream(path) << std::string(5000, 'x');
  auto file = TraceFile::Create(path, kPlenty);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(Content(path), "[\n\n]\n");
}

TEST(TraceFileTest, KnowsWhatFits) {
  auto file = TraceFile::Create(Path("bounded.json"), 4096);
  ASSERT_TRUE(file.ok());
  const size_t room = (*file)->room();
  EXPECT_GT(room, 2000);
  EXPECT_LT(room, 4096 - TraceFile::kReserve);
  ASSERT_TRUE((*file)->Write(std::string(1500, ' '), std::string(200, ' ')).ok());
  EXPECT_EQ((*file)->room(), room - 1500) << "the end will be replaced";
  ASSERT_TRUE((*file)->Write(std::string(2000, ' '), "").ok());
  EXPECT_EQ((*file)->room(), 0);
}

TEST(TraceFileTest, CannotBeCreated) {
  const std::string path = Path("no_such_folder/trace.json");
  const auto file = TraceFile::Create(path, kPlenty);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("No such file"));
}

TEST(TraceFileTest, FullDiskIsAnErrorWithThePath) {
  auto file = TraceFile::Create("/dev/full", kPlenty);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted) << file.status();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/dev/full"));
}

TEST(TraceFileTest, RankGoesBeforeTheExtension) {
  EXPECT_EQ(PathOfRank("trace.json", 0), "trace.rank0.json");
  EXPECT_EQ(PathOfRank("/a.b/trace", 12), "/a.b/trace.rank12");
  EXPECT_EQ(PathOfRank("a.b/trace.tar.json", 1), "a.b/trace.tar.rank1.json");
  EXPECT_EQ(PathOfRank(".trace", 1), ".trace.rank1");
}

}  // namespace
}  // namespace ronda::testing
