#include "bench/step/ronda_exchange.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace ronda::bench {
namespace {

constexpr char kLockVariable[] = "RONDA_LOCK_AFTER";
constexpr int kOverwrite = 1;

}  // namespace

RondaExchange::RondaExchange(const ModelShapes& model, Gradients* gradients, WireFormat wire)
    : options_{.op = Op::Average, .compression = static_cast<Compression>(wire)} {
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    tensors_.push_back(tensor(absl::StrCat("gradient/", parameter.name), gradients->data(i), parameter.shape));
  }
  in_flight_.reserve(tensors_.size());
}

void RondaExchange::Ready(size_t parameter) { in_flight_.push_back(allreduce_async(tensors_[parameter], options_)); }

void RondaExchange::Finish() {
  for (const Handle& handle : in_flight_) handle.synchronize();
  in_flight_.clear();
}

int64_t RondaExchange::control_messages() {
  const ronda_statistics so_far = statistics();
  return static_cast<int64_t>(so_far.reports_sent + so_far.lists_received);
}

Options OptionsOf(const Setting& setting) {
  Options options;
  options.cycle_time = Options::Seconds(absl::ToDoubleSeconds(setting.cycle_time));
  options.fusion_threshold = static_cast<int64_t>(setting.fusion_threshold);
  return options;
}

SettingEnvironment::SettingEnvironment(const Setting& setting) {
  if (const char* const value = std::getenv(kLockVariable)) before_ = value;
  if (setting.locking == ScheduleLocking::kOff) setenv(kLockVariable, "0", kOverwrite);
}

SettingEnvironment::~SettingEnvironment() {
  if (before_.has_value()) {
    setenv(kLockVariable, before_->c_str(), kOverwrite);
  } else {
    unsetenv(kLockVariable);
  }
}

}  // namespace ronda::bench
