#include "bench/step/settings.h"

#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda::bench {

const char* Name(ScheduleLocking locking) { return locking == ScheduleLocking::kOn ? "on" : "off"; }

std::string Name(const Setting& setting) {
  return absl::StrCat("ronda fusion=", FormatSize(setting.fusion_threshold), " wire=", Name(setting.wire),
                      " cycle=", absl::FormatDuration(setting.cycle_time), " ", Name(setting.backend),
                      " lock=", Name(setting.locking));
}

std::vector<Setting> AllSettings(const Sweep& sweep) {
  std::vector<Setting> settings;
  for (size_t fusion_threshold : sweep.fusion_thresholds) {
    for (WireFormat wire : sweep.wires) {
      for (absl::Duration cycle_time : sweep.cycle_times) {
        for (Backend backend : sweep.backends) {
          for (ScheduleLocking locking : sweep.lockings) {
            settings.push_back({fusion_threshold, wire, cycle_time, backend, locking});
          }
        }
      }
    }
  }
  return settings;
}

int64_t WireBytes(const ModelShapes& model, WireFormat wire) {
  const WireLayout layout = LayoutOf(DType::kFloat32, wire);
  const auto elements = static_cast<int64_t>(layout.granule_elements);
  int64_t granules = 0;
  for (const Parameter& parameter : model.parameters) granules += (parameter.count() + elements - 1) / elements;
  return granules * static_cast<int64_t>(layout.granule_bytes);
}

}  // namespace ronda::bench
