#ifndef RONDA_BENCH_SHAPES_PRESETS_H_
#define RONDA_BENCH_SHAPES_PRESETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/shapes/shapes.h"

namespace ronda::bench {

// The names that PresetShapes() knows.
std::vector<std::string> PresetNames();

// The parameters of a well-known model. Errors: INVALID_ARGUMENT that lists the names there are.
absl::StatusOr<ModelShapes> PresetShapes(absl::string_view name);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_SHAPES_PRESETS_H_
