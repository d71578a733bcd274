// SPDX-License-Identifier: Apache-2.0

// Runs a fuzz target on each file in the directories that are its arguments. Each file is a test case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

class Replay : public ::testing::Test {
 public:
  explicit Replay(std::filesystem::path file) : file_(std::move(file)) {}

  // A fuzz target that fails ends the process.
  void TestBody() override {
    std::ostringstream contents;
    contents << std::ifstream(file_, std::ios::binary).rdbuf();
    // Copies the input into memory of exactly its size, so that AddressSanitizer detects reads past the end.
    const std::string text = contents.str();
    const std::vector<uint8_t> input(text.begin(), text.end());
    EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }

 private:
  const std::filesystem::path file_;
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    ::testing::RegisterTest("Corpus", file.filename().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [file]() -> ::testing::Test* { return new Replay(file); });
  }
  if (files.empty()) {
    std::fprintf(stderr, "no corpus: the arguments are directories with at least one file\n");
    return 2;
  }
  return RUN_ALL_TESTS();
}
