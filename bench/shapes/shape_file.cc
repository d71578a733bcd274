#include "bench/shapes/shape_file.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

// A tensor of more elements is a mistake in the file, and their product would overflow.
constexpr int64_t kMostElements = int64_t{1} << 40;

absl::Status ParseDimension(absl::string_view word, Parameter* parameter) {
  int64_t dimension = 0;
  if (!absl::SimpleAtoi(word, &dimension) || dimension < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a dimension is a number of 1 or more, not \"", word, "\""));
  }
  if (dimension > kMostElements / parameter->count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", parameter->name, "' has more than ", kMostElements, " elements"));
  }
  parameter->shape.push_back(dimension);
  return absl::OkStatus();
}

// Nothing is added for a line without a tensor.
absl::Status ParseLine(absl::string_view line, std::set<std::string>* names, ModelShapes* model) {
  line = line.substr(0, line.find('#'));
  const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  Parameter parameter = {.name = words.front()};
  if (!names->insert(parameter.name).second) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", parameter.name, "' is there already"));
  }
  for (size_t i = 1; i < words.size(); ++i) RONDA_RETURN_IF_ERROR(ParseDimension(words[i], &parameter));
  parameter.work = static_cast<double>(parameter.count());
  model->parameters.push_back(std::move(parameter));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelShapes> ParseShapes(absl::string_view text, absl::string_view file) {
  ModelShapes model = {.name = std::string(file), .description = "from a file"};
  std::set<std::string> names;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::Status status = ParseLine(line, &names, &model);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": ", status.message()));
  }
  if (model.parameters.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": there is no tensor in this file"));
  }
  return model;
}

absl::StatusOr<ModelShapes> ReadShapes(const std::string& path) {
  RONDA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseShapes(text, path);
}

}  // namespace ronda::bench
