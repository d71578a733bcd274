// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_MODEL_SHAPES_H_
#define RONDA_BENCH_HARNESS_MODEL_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda::bench {

// A trainable tensor of a model.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  // outermost dimension first
  // The number of multiply-adds per sample that the backward pass makes between the previous gradient and this one. A
  // tensor takes a share of the backward pass that is proportional to its `work`. So only the ratios between tensors
  // matter.
  double work = 0;

  int64_t count() const {
    int64_t elements = 1;
    for (int64_t dimension : shape) elements *= dimension;
    return elements;
  }
};

// The trainable tensors of a model in the order of the forward pass. Their gradients become ready in reverse order.
struct ModelShapes {
  std::string name;
  std::string description;  // of the variant
  std::vector<Parameter> parameters;

  int64_t count() const {
    int64_t elements = 0;
    for (const Parameter& parameter : parameters) elements += parameter.count();
    return elements;
  }
};

// Returns the names that PresetShapes() accepts.
std::vector<std::string> PresetNames();

// Returns the parameters of a well-known model. Errors: INVALID_ARGUMENT, with a text that lists PresetNames().
absl::StatusOr<ModelShapes> PresetShapes(absl::string_view name);

// Reads a model from text. Each line describes one tensor, in forward order: its name and its dimensions, separated by
// blanks ("layer1.weight 64 3 7 7"). A name without dimensions is a scalar. Empty lines, and comments that start with
// '#', are skipped. A tensor's work is set to its number of elements. `file` is the file name for error messages.
// Errors: INVALID_ARGUMENT, with a text that starts with "file:line: ".
absl::StatusOr<ModelShapes> ParseShapes(absl::string_view text, absl::string_view file);

// Reads a model from a file, like ParseShapes. Errors: NOT_FOUND, and those of ParseShapes().
absl::StatusOr<ModelShapes> ReadShapes(const std::string& path);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_MODEL_SHAPES_H_
