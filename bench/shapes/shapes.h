#ifndef RONDA_BENCH_SHAPES_SHAPES_H_
#define RONDA_BENCH_SHAPES_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ronda::bench {

// A trainable tensor of a model.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  // outermost dimension first
  // Multiply-adds, for one sample, that the backward pass does last before this tensor's gradient is complete, up to a
  // factor that all tensors share: the time of the pass is spread over the tensors in proportion to it.
  double work = 0;

  int64_t count() const {
    int64_t elements = 1;
    for (int64_t dimension : shape) elements *= dimension;
    return elements;
  }
};

// The trainable tensors of a model in the order of its forward pass. Their gradients become ready in the opposite one.
struct ModelShapes {
  std::string name;
  std::string description;  // which variant it is
  std::vector<Parameter> parameters;

  int64_t count() const {
    int64_t elements = 0;
    for (const Parameter& parameter : parameters) elements += parameter.count();
    return elements;
  }
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_SHAPES_SHAPES_H_
