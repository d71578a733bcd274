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
  // The multiply-adds of the backward pass for one sample, from the previous gradient to this one. A tensor's part of
  // the pass' time is proportional to its `work`. So only the ratios between tensors matter.
  double work = 0;

  int64_t count() const {
    int64_t elements = 1;
    for (int64_t dimension : shape) elements *= dimension;
    return elements;
  }
};

// The trainable tensors of a model in the order of its forward pass. The gradients of these tensors become ready in the
// reverse order.
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

// Returns the parameters of a well-known model. Errors: INVALID_ARGUMENT that lists the names of PresetNames().
absl::StatusOr<ModelShapes> PresetShapes(absl::string_view name);

// Reads a model from text. Each tensor has a line, in forward order, with its name and its dimensions, separated by
// blanks ("layer1.weight 64 3 7 7"). A name alone is a scalar. Empty lines and comments after a '#' are skipped. A
// tensor's work is set to its number of elements. `file` is the name of the file for error messages. Errors:
// INVALID_ARGUMENT that begins with "file:line: ".
absl::StatusOr<ModelShapes> ParseShapes(absl::string_view text, absl::string_view file);

// Reads a model from a file, like ParseShapes. Errors: the errors of ParseShapes(), and NOT_FOUND.
absl::StatusOr<ModelShapes> ReadShapes(const std::string& path);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_MODEL_SHAPES_H_
