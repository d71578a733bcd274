#ifndef RONDA_BENCH_STEP_RONDA_EXCHANGE_H_
#define RONDA_BENCH_STEP_RONDA_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/shapes/shapes.h"
#include "bench/step/gradients.h"
#include "bench/step/settings.h"
#include "bench/step/step_loop.h"
#include "client/ronda.hpp"

namespace ronda::bench {

// Averages gradients as a trainer has Ronda do it: each submitted when it is ready, then all waited for. Acts for the
// calling thread's rank, which has joined its job. Throws ronda::Error. Thread-compatible.
class RondaExchange : public GradientExchange {
 public:
  // `gradients` are of `model`, and must outlive the exchange.
  RondaExchange(const ModelShapes& model, Gradients* gradients, WireFormat wire);

  void Ready(size_t parameter) override;
  void Finish() override;
  // Its reports, and the lists it has got.
  int64_t control_messages() override;

 private:
  const AllreduceOptions options_;
  std::vector<Tensor> tensors_;
  std::vector<Handle> in_flight_;
};

// The options with which a job is begun for `setting`.
Options OptionsOf(const Setting& setting);

// What the environment must say while a job is begun for `setting`, beyond its options. Puts back what was there before
// when it goes. Thread-compatible; no other thread may use the environment meanwhile.
class SettingEnvironment {
 public:
  explicit SettingEnvironment(const Setting& setting);
  ~SettingEnvironment();
  SettingEnvironment(const SettingEnvironment&) = delete;
  SettingEnvironment& operator=(const SettingEnvironment&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_RONDA_EXCHANGE_H_
