// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/model_shapes.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

// Appends layers to a list of parameters. `positions` is how often a layer's weights are used per sample: once per
// output pixel in a convolution, once per token in a transformer. Thread-compatible.
class LayerList {
 public:
  void Convolution(const std::string& name, int64_t out, int64_t in, int64_t size, int64_t positions) {
    Weight(name, {out, in, size, size}, positions);
  }

  void Linear(const std::string& name, int64_t out, int64_t in, int64_t positions) {
    Weight(name, {out, in}, positions);
    Vector(name + ".bias", out, positions);
  }

  // Adds the scale and the shift of a batch or layer normalisation.
  void Normalisation(const std::string& name, int64_t width, int64_t positions) {
    Vector(name + ".weight", width, positions);
    Vector(name + ".bias", width, positions);
  }

  void Vector(const std::string& name, int64_t width, int64_t positions) {
    Add(name, {width}, static_cast<double>(width) * static_cast<double>(positions));
  }

  // Adds an embedding table. Looking up a row takes no multiplication.
  void Table(const std::string& name, int64_t rows, int64_t width) { Add(name, {rows, width}, 0); }

  // Adds the work of a layer that shares another layer's weights. The backward pass does this work just before it
  // computes the gradient of the last tensor added.
  void SharedLinear(int64_t out, int64_t in, int64_t positions) {
    parameters_.back().work += static_cast<double>(out) * static_cast<double>(in) * static_cast<double>(positions);
  }

  std::vector<Parameter> Take() { return std::move(parameters_); }

 private:
  void Weight(const std::string& name, std::vector<int64_t> shape, int64_t positions) {
    Add(name + ".weight", std::move(shape), 0);
    parameters_.back().work = static_cast<double>(parameters_.back().count()) * static_cast<double>(positions);
  }

  void Add(std::string name, std::vector<int64_t> shape, double work) {
    parameters_.push_back({.name = std::move(name), .shape = std::move(shape), .work = work});
  }

  std::vector<Parameter> parameters_;
};

// The LeNet model of examples/lenet_mnist.
std::vector<Parameter> LeNet() {
  LayerList layers;
  layers.Convolution("conv1", 6, 1, 5, 28 * 28);
  layers.Vector("conv1.bias", 6, 28 * 28);
  layers.Convolution("conv2", 16, 6, 5, 10 * 10);
  layers.Vector("conv2.bias", 16, 10 * 10);
  layers.Linear("fc1", 120, 400, 1);
  layers.Linear("fc2", 84, 120, 1);
  layers.Linear("fc3", 10, 84, 1);
  return layers.Take();
}

// The ResNet of He et al. 2015, with bottleneck blocks. The strides are in the 3x3 convolutions, as in most later
// implementations.
std::vector<Parameter> ResNet(const std::vector<int>& blocks) {
  LayerList layers;
  const auto convolution = [&layers](const std::string& name, int64_t out, int64_t in, int64_t size, int64_t side) {
    layers.Convolution(name, out, in, size, side * side);
    layers.Normalisation(name + ".norm", out, side * side);
  };
  convolution("stem", 64, 3, 7, 112);
  int64_t in = 64;
  int64_t side = 56;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = absl::StrCat("layer", stage + 1, ".", block);
      const int64_t out_side = block == 0 && stage > 0 ? side / 2 : side;
      convolution(name + ".conv1", width, in, 1, side);
      convolution(name + ".conv2", width, width, 3, out_side);
      convolution(name + ".conv3", 4 * width, width, 1, out_side);
      if (block == 0) convolution(name + ".shortcut", 4 * width, in, 1, out_side);
      in = 4 * width;
      side = out_side;
    }
  }
  layers.Linear("classifier", 1000, in, 1);
  return layers.Take();
}

// The network of Simonyan and Zisserman 2014, configuration D.
std::vector<Parameter> Vgg16() {
  const std::vector<std::vector<int64_t>> stages = {
      {64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
  LayerList layers;
  int64_t in = 3;
  int64_t side = 224;
  int number = 1;
  for (const std::vector<int64_t>& stage : stages) {
    for (int64_t out : stage) {
      const std::string name = absl::StrCat("conv", number++);
      layers.Convolution(name, out, in, 3, side * side);
      layers.Vector(name + ".bias", out, side * side);
      in = out;
    }
    side /= 2;
  }
  layers.Linear("fc1", 4096, in * side * side, 1);
  layers.Linear("fc2", 4096, 4096, 1);
  layers.Linear("fc3", 1000, 4096, 1);
  return layers.Take();
}

// The uncased model of Devlin et al. 2018, with both pre-training heads, for sequences of 512 tokens. The language
// model head shares the weights of the word embeddings.
std::vector<Parameter> BertLarge() {
  constexpr int64_t kWidth = 1024;
  constexpr int64_t kTokens = 512;
  constexpr int64_t kVocabulary = 30522;
  LayerList layers;
  layers.Table("embeddings.word", kVocabulary, kWidth);
  layers.Table("embeddings.position", kTokens, kWidth);
  layers.Table("embeddings.token_type", 2, kWidth);
  layers.Normalisation("embeddings.norm", kWidth, kTokens);
  for (int layer = 0; layer < 24; ++layer) {
    const std::string name = absl::StrCat("layer", layer);
    for (const char* part : {".query", ".key", ".value", ".attention.output"}) {
      layers.Linear(name + part, kWidth, kWidth, kTokens);
    }
    layers.Normalisation(name + ".attention.norm", kWidth, kTokens);
    layers.Linear(name + ".intermediate", 4 * kWidth, kWidth, kTokens);
    layers.Linear(name + ".output", kWidth, 4 * kWidth, kTokens);
    layers.Normalisation(name + ".norm", kWidth, kTokens);
  }
  layers.Linear("pooler", kWidth, kWidth, 1);
  layers.Linear("next_sentence", 2, kWidth, 1);
  layers.Linear("predictions.transform", kWidth, kWidth, kTokens);
  layers.Normalisation("predictions.norm", kWidth, kTokens);
  layers.Vector("predictions.bias", kVocabulary, kTokens);
  layers.SharedLinear(kVocabulary, kWidth, kTokens);
  return layers.Take();
}

// The smallest model of Radford et al. 2019, for sequences of 1,024 tokens. The head shares the weights of the token
// embeddings.
std::vector<Parameter> Gpt2Small() {
  constexpr int64_t kWidth = 768;
  constexpr int64_t kTokens = 1024;
  constexpr int64_t kVocabulary = 50257;
  LayerList layers;
  layers.Table("wte", kVocabulary, kWidth);
  layers.Table("wpe", kTokens, kWidth);
  for (int layer = 0; layer < 12; ++layer) {
    const std::string name = absl::StrCat("h", layer);
    layers.Normalisation(name + ".ln_1", kWidth, kTokens);
    layers.Linear(name + ".attn.qkv", 3 * kWidth, kWidth, kTokens);
    layers.Linear(name + ".attn.projection", kWidth, kWidth, kTokens);
    layers.Normalisation(name + ".ln_2", kWidth, kTokens);
    layers.Linear(name + ".mlp.in", 4 * kWidth, kWidth, kTokens);
    layers.Linear(name + ".mlp.out", kWidth, 4 * kWidth, kTokens);
  }
  layers.Normalisation("ln_f", kWidth, kTokens);
  layers.SharedLinear(kVocabulary, kWidth, kTokens);
  return layers.Take();
}

std::vector<Parameter> ManySmall() {
  LayerList layers;
  for (int i = 0; i < 1000; ++i) layers.Vector(absl::StrCat("small", i), 256, 1);
  return layers.Take();
}

struct Preset {
  const char* name;
  const char* description;
  std::vector<Parameter> (*parameters)();
};

constexpr Preset kPresets[] = {
    {"lenet", "LeNet-5 for 28x28 images, as examples/lenet_mnist has it", LeNet},
    {"resnet50", "ResNet-50 for ImageNet, 224x224",
     [] {
       return ResNet({3, 4, 6, 3});
     }},
    {"resnet101", "ResNet-101 for ImageNet, 224x224",
     [] {
       return ResNet({3, 4, 23, 3});
     }},
    {"vgg16", "VGG-16 (configuration D) for ImageNet, 224x224", Vgg16},
    {"bert-large", "BERT-large, uncased, with both heads of its pre-training; 512 tokens", BertLarge},
    {"gpt2", "GPT-2 small, head tied to the embeddings; 1,024 tokens", Gpt2Small},
    {"many-small", "1,000 tensors of 1 KiB", ManySmall},
};

// The maximum number of elements in a tensor. A larger number is a mistake in the file, and the product of the
// dimensions could overflow.
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

// Adds the tensor on this line to `model`; a line may also have no tensor.
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

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

absl::StatusOr<ModelShapes> PresetShapes(absl::string_view name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) {
      return ModelShapes{.name = preset.name, .description = preset.description, .parameters = preset.parameters()};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no preset \"", name, "\"; there are ", absl::StrJoin(PresetNames(), ", ")));
}

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
