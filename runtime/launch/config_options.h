#ifndef RONDA_RUNTIME_LAUNCH_CONFIG_OPTIONS_H_
#define RONDA_RUNTIME_LAUNCH_CONFIG_OPTIONS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/config_file.h"
#include "runtime/launch/given_options.h"

namespace ronda {

// Turns what a configuration file says into options, by horovodrun's keys: "params.cycle-time-ms" is --cycle-time-ms,
// "timeline.filename" --timeline-filename, "autotune.enabled: false" --no-autotune. Every other option can stand
// outside of sections by its long name. Options without a value take true or false; a list is a use for each element
// where an option may be repeated, else elements with commas between them.
//
// `name` is the file's, for errors.
// Errors: INVALID_ARGUMENT with the file's name, the line and the key.
absl::StatusOr<std::vector<GivenOption>> ConfigOptions(absl::string_view name, const std::vector<ConfigEntry>& entries);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_CONFIG_OPTIONS_H_
