// SPDX-License-Identifier: Apache-2.0

// All settings of a data-parallel training together, from a program or a file.
#ifndef RONDA_CLIENT_RONDA_TRAINING_STRATEGY_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_STRATEGY_HPP_

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "../job.hpp"
#include "../optimizer.hpp"
#include "../options.hpp"
#include "../status.hpp"
#include "local_sgd.hpp"
#include "loss_scaler.hpp"
#include "power_sgd.hpp"
#include "settings_file.hpp"
#include "top_k.hpp"

namespace ronda {
inline namespace v1 {
namespace training {

// The options that a program passes to Ronda's parts. A part without options is not used.
//
//   const auto strategy = ronda::training::load_strategy("strategy.yaml");
//   ronda::init(strategy.job);
//   ronda::DistributedOptimizer optimizer(sgd, gradients, strategy.optimizer);
//   std::optional<ronda::training::LossScaler> scaler;
//   if (strategy.loss_scaler) scaler.emplace(*strategy.loss_scaler);
struct Strategy {
  Options job;
  DistributedOptimizerOptions optimizer;
  std::optional<LossScalerOptions> loss_scaler;
  // At most one of these two, which replace the DistributedOptimizer:
  std::optional<LocalSgdOptions> local_sgd;
  std::optional<PowerSgdOptions> power_sgd;
  std::optional<TopKOptions> top_k;
};

}  // namespace training

namespace detail {

// A strategy while its file is being read. All parts are present, whether they are used or not, because their switches
// may come later in the file.
struct StrategyDraft {
  training::Strategy strategy;
  training::LossScalerOptions loss_scaler;
  training::LocalSgdOptions local_sgd;
  training::PowerSgdOptions power_sgd;
  training::TopKOptions top_k;
  bool use_loss_scaler = false, use_local_sgd = false, use_power_sgd = false, use_top_k = false;
  bool finds_unused = true;  // always true, whatever the file says
  bool merges = false;       // gradients of several passes: Paddle's switch for the two below
  int merged_passes = 1;
  bool merge_averages = true;
};

// A key of a strategy's file. Keys in maps include the map's name. `set` is called with the key's value.
struct StrategyKey {
  std::string_view name;
  Status (*set)(StrategyDraft& draft, const SettingsValue& value);
};

inline Status set_op(const SettingsValue& value, Op* op) {
  return value.choose({{"average", Op::Average}, {"avg", Op::Average}, {"sum", Op::Sum}, {"adasum", Op::Adasum}}, op);
}

inline Status set_compression(const SettingsValue& value, Compression* compression) {
  return value.choose({{"none", Compression::none},
                       {"fp16", Compression::fp16},
                       {"bf16", Compression::bf16},
                       {"fp8_e4m3", Compression::fp8_e4m3},
                       {"fp8_e5m2", Compression::fp8_e5m2}},
                      compression);
}

// Paddle's numbers are the fractions that do not travel, from the first stage of the ramp to the last.
inline Status set_sparsity(const SettingsValue& value, training::TopKOptions* top_k) {
  std::vector<double> stages;
  Status status = value.read(&stages);
  if (!status.ok()) return status;
  top_k->initial_density = 1 - stages.front();
  top_k->density = 1 - stages.back();
  return {};
}

// A number whose unit differs from the file's.
template <class Number>
Status set_scaled(const SettingsValue& value, double factor, std::optional<Number>* target) {
  double number = 0;
  Status status = value.read(&number);
  if (status.ok()) *target = static_cast<Number>(number * factor);
  return status;
}
inline Status set_seconds(const SettingsValue& value, double unit, std::optional<Options::Seconds>* target) {
  double number = 0;
  Status status = value.read(&number);
  if (status.ok()) *target = Options::Seconds(number * unit);
  return status;
}

// Paddle's switch for fusing: if it is off, each gradient travels alone.
inline Status set_fusing(const SettingsValue& value, std::optional<std::int64_t>* threshold) {
  bool on = true;
  Status status = value.read(&on);
  if (status.ok() && !on) *threshold = 0;
  return status;
}

inline Status set_fp16(const SettingsValue& value, Compression* compression) {
  bool on = false;
  Status status = value.read(&on);
  if (status.ok() && on) *compression = Compression::fp16;
  return status;
}

// A line per setting: Ronda's options, and the options of Paddle's DistributedStrategy that Ronda also has.
inline const std::vector<StrategyKey>& strategy_keys() {  // #lizard forgives: a table may be long
  static const std::vector<StrategyKey> keys = {
      {"fusion_threshold",
       [](StrategyDraft& d, const SettingsValue& v) { return set_scaled(v, 1, &d.strategy.job.fusion_threshold); }},
      {"fuse_grad_size_in_MB",
       [](StrategyDraft& d, const SettingsValue& v) {
         return set_scaled(v, 1 << 20, &d.strategy.job.fusion_threshold);
       }},
      {"fuse_all_reduce_ops",
       [](StrategyDraft& d, const SettingsValue& v) { return set_fusing(v, &d.strategy.job.fusion_threshold); }},
      {"cache_capacity",
       [](StrategyDraft& d, const SettingsValue& v) { return set_scaled(v, 1, &d.strategy.job.cache_capacity); }},
      {"cycle_time_ms",
       [](StrategyDraft& d, const SettingsValue& v) { return set_seconds(v, 1e-3, &d.strategy.job.cycle_time); }},
      {"stall_warning_s",
       [](StrategyDraft& d, const SettingsValue& v) { return set_seconds(v, 1, &d.strategy.job.stall_warning); }},
      {"stall_deadline_s",
       [](StrategyDraft& d, const SettingsValue& v) { return set_seconds(v, 1, &d.strategy.job.stall_deadline); }},
      {"start_timeout_s",
       [](StrategyDraft& d, const SettingsValue& v) { return set_seconds(v, 1, &d.strategy.job.start_timeout); }},

      {"op", [](StrategyDraft& d, const SettingsValue& v) { return set_op(v, &d.strategy.optimizer.op); }},
      {"gradient_scale_configs.scale_strategy",
       [](StrategyDraft& d, const SettingsValue& v) { return set_op(v, &d.strategy.optimizer.op); }},
      {"compression",
       [](StrategyDraft& d, const SettingsValue& v) { return set_compression(v, &d.strategy.optimizer.compression); }},
      {"fp16_allreduce",
       [](StrategyDraft& d, const SettingsValue& v) { return set_fp16(v, &d.strategy.optimizer.compression); }},
      {"prescale", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.prescale); }},
      {"postscale", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.postscale); }},
      {"error_feedback",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.error_feedback); }},
      {"gradient_predivide_factor",
       [](StrategyDraft& d, const SettingsValue& v) {
         return v.read(&d.strategy.optimizer.gradient_predivide_factor);
       }},
      {"skip_on_overflow",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.skip_on_overflow); }},
      {"group_count",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.group_count); }},
      {"backward_passes_per_step",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.strategy.optimizer.backward_passes_per_step); }},
      {"find_unused_parameters", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.finds_unused); }},

      {"gradient_merge", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.merges); }},
      {"gradient_merge_configs.k_steps",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.merged_passes); }},
      {"gradient_merge_configs.avg",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.merge_averages); }},

      {"amp", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.use_loss_scaler); }},
      {"amp_configs.init_loss_scaling",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.loss_scaler.initial); }},
      {"amp_configs.incr_every_n_steps",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.loss_scaler.growth_interval); }},
      {"amp_configs.incr_ratio",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.loss_scaler.growth); }},
      {"amp_configs.decr_ratio",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.loss_scaler.backoff); }},

      {"localsgd", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.use_local_sgd); }},
      {"localsgd_configs.k_steps",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.local_sgd.interval); }},
      {"localsgd_configs.begin_step",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.local_sgd.start_step); }},

      {"dgc", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.use_top_k); }},
      {"dgc_configs.rampup_begin_step",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.top_k.start_step); }},
      {"dgc_configs.rampup_step",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.top_k.warm_up_steps); }},
      {"dgc_configs.sparsity", [](StrategyDraft& d, const SettingsValue& v) { return set_sparsity(v, &d.top_k); }},
      {"dgc_configs.momentum", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.top_k.momentum); }},
      {"dgc_configs.clip_norm", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.top_k.clip_norm); }},
      {"dgc_configs.min_elements",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.top_k.min_elements); }},

      {"power_sgd", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.use_power_sgd); }},
      {"power_sgd_configs.rank", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.power_sgd.rank); }},
      {"power_sgd_configs.min_saving",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.power_sgd.min_saving); }},
      {"power_sgd_configs.start_step",
       [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.power_sgd.start_step); }},
      {"power_sgd_configs.seed", [](StrategyDraft& d, const SettingsValue& v) { return v.read(&d.power_sgd.seed); }},
  };
  return keys;
}

inline Status apply_setting(const SettingsValue& value, StrategyDraft* draft) {
  std::vector<std::string_view> names;
  for (const StrategyKey& key : strategy_keys()) {
    if (key.name == value.key()) return key.set(*draft, value);
    names.push_back(key.name);
  }
  const std::string nearest = nearest_name(value.key(), names);
  return value.refuse("is no setting" +
                      (nearest.empty() ? "; docs/training.md lists them" : "; is it " + nearest + "?"));
}

// The strategy with the parts that are switched on.
inline Result<training::Strategy> finish_strategy(const std::string& name, const StrategyDraft& draft) {
  training::Strategy strategy = draft.strategy;
  if (draft.use_local_sgd + draft.use_power_sgd + draft.use_top_k > 1) {
    return invalid_argument(name + ": localsgd, power_sgd and dgc exclude each other: switch one of them on");
  }
  if (draft.use_local_sgd) strategy.local_sgd = draft.local_sgd;
  if (draft.use_power_sgd) strategy.power_sgd = draft.power_sgd;
  if (draft.use_top_k) strategy.top_k = draft.top_k;
  if (draft.use_loss_scaler) {
    strategy.loss_scaler = draft.loss_scaler;
    strategy.optimizer.skip_on_overflow = true;
  }
  if (!draft.merges) return strategy;
  if (draft.merged_passes < 1) {
    return invalid_argument(name + ": gradient_merge_configs.k_steps is " + std::to_string(draft.merged_passes) +
                            ": it must be at least 1");
  }
  strategy.optimizer.backward_passes_per_step = draft.merged_passes;
  if (draft.merge_averages) strategy.optimizer.prescale /= draft.merged_passes;
  return strategy;
}

}  // namespace detail

namespace training {

// The strategy that `text` describes. settings_file.hpp describes the format, docs/training.md the settings. Missing
// settings have their defaults. Ranges are checked where the options are used. `name` is the name of the file, for
// errors.
// Errors: RONDA_ERROR_INVALID_ARGUMENT with the file, the line and the setting; for an unknown setting, with the
// nearest known one.
inline Result<Strategy> try_read_strategy(std::string_view text, const std::string& name = "strategy") {
  Result<std::vector<detail::SettingsValue>> values = detail::SettingsReader(name, text).read();
  if (!values.ok()) return values.status();
  detail::StrategyDraft draft;
  for (const detail::SettingsValue& value : values.value()) {
    Status status = detail::apply_setting(value, &draft);
    if (!status.ok()) return status;
  }
  return detail::finish_strategy(name, draft);
}
inline Strategy read_strategy(std::string_view text, const std::string& name = "strategy") {
  return try_read_strategy(text, name).value();
}

// As try_read_strategy(), for a file. Errors: also RONDA_ERROR_INVALID_ARGUMENT if the file cannot be read.
inline Result<Strategy> try_load_strategy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) return detail::invalid_argument(path + ": cannot be read: name a file of settings");
  return try_read_strategy(text.str(), path);
}
inline Strategy load_strategy(const std::string& path) { return try_load_strategy(path).value(); }

}  // namespace training
}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_STRATEGY_HPP_
