#ifndef RONDA_BENCH_SHAPES_SHAPE_FILE_H_
#define RONDA_BENCH_SHAPES_SHAPE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/shapes/shapes.h"

namespace ronda::bench {

// Reads a model from text: a line a tensor, in forward order, with its name and its dimensions ("layer1.weight 64 3 7
// 7"), separated by blanks; a name alone is a scalar. Empty lines, and what follows a '#', are skipped. A tensor's work
// is taken to be its number of elements. `file` is for messages.
// Errors: INVALID_ARGUMENT that begins with "file:line: ".
absl::StatusOr<ModelShapes> ParseShapes(absl::string_view text, absl::string_view file);

// The same from a file. Errors: NOT_FOUND too.
absl::StatusOr<ModelShapes> ReadShapes(const std::string& path);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_SHAPES_SHAPE_FILE_H_
