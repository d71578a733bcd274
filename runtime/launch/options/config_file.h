#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_CONFIG_FILE_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/options/command_line.h"

namespace ronda {

// A value in a configuration file.
struct ConfigEntry {
  std::string key;                  // with those around it: "params.cycle-time-ms"
  std::vector<std::string> values;  // one, or the elements of a list
  int line = 0;                     // of the value, counted from 1

  bool operator==(const ConfigEntry&) const = default;
};

// Reads YAML: maps of maps, of scalars, and of lists of scalars. In keys, "_" becomes "-". Keys without a value are
// left out, as horovodrun does. Aliases are refused, and so are several documents in a file.
//
// `name` is the file's, for errors.
// Errors: INVALID_ARGUMENT with the file's name and the line.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfigFile(absl::string_view name, absl::string_view content);

// Turns the entries of a configuration file into options, by horovodrun's keys: "params.cycle-time-ms" is
// --cycle-time-ms, "timeline.filename" --timeline-filename, "autotune.enabled: false" --no-autotune. Every other option
// can stand outside of sections by its long name. Options without a value take true or false; a list is a use for each
// element where an option may be repeated, else elements with commas between them.
//
// `name` is the file's, for errors.
// Errors: INVALID_ARGUMENT with the file's name, the line and the key.
absl::StatusOr<std::vector<GivenOption>> ConfigOptions(const OptionTable& table, absl::string_view name,
                                                       const std::vector<ConfigEntry>& entries);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_CONFIG_FILE_H_
