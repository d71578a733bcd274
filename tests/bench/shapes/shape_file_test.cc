#include "bench/shapes/shape_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ParseShapes(text, "model.txt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ShapeFile, ALineIsATensor) {
  const absl::StatusOr<ModelShapes> model =
      ParseShapes("# forward order\nconv.weight 64 3\t7 7\r\n\n  scale   # a scalar\nfc.bias 10", "model.txt");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "model.txt");
  ASSERT_EQ(model->parameters.size(), 3u);
  EXPECT_EQ(model->parameters[0].name, "conv.weight");
  EXPECT_EQ(model->parameters[0].shape, (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(model->parameters[0].work, 64 * 3 * 7 * 7);
  EXPECT_EQ(model->parameters[1].count(), 1);
  EXPECT_EQ(model->count(), 64 * 3 * 7 * 7 + 1 + 10);
}

TEST(ShapeFile, ErrorsNameFileAndLine) {
  EXPECT_EQ(ErrorOf("a 1\nb 2 x\n"), "model.txt:2: a dimension is a number of 1 or more, not \"x\"");
  EXPECT_EQ(ErrorOf("a 0\n"), "model.txt:1: a dimension is a number of 1 or more, not \"0\"");
  EXPECT_EQ(ErrorOf("a -3\n"), "model.txt:1: a dimension is a number of 1 or more, not \"-3\"");
  EXPECT_EQ(ErrorOf("a 99999999999999999999\n"),
            "model.txt:1: a dimension is a number of 1 or more, not \"99999999999999999999\"");
  EXPECT_EQ(ErrorOf("a 1\n\na 2\n"), "model.txt:3: tensor 'a' is there already");
  EXPECT_EQ(ErrorOf("a 1048576 1048577\n"), "model.txt:1: tensor 'a' has more than 1099511627776 elements");
  EXPECT_EQ(ErrorOf("# nothing\n"), "model.txt:2: there is no tensor in this file");
}

TEST(ShapeFile, IsReadFromDisk) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/shapes.txt";
  std::ofstream(path) << "w 2 3\n";
  const absl::StatusOr<ModelShapes> model = ReadShapes(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->count(), 6);
  EXPECT_EQ(ReadShapes(path + ".absent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ronda::bench
