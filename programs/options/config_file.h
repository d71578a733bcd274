// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_
#define RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/options/command_line.h"

namespace ronda {

// A value, or a list of values, in a configuration file.
struct ConfigEntry {
  std::string key;                  // with the enclosing keys: "params.cycle-time-ms"
  std::vector<std::string> values;  // one, or the elements of a list
  int line = 0;                     // of the value, counted from 1

  bool operator==(const ConfigEntry&) const = default;
};

// Parses YAML: maps of maps, of scalars, and of lists of scalars. In keys, "_" becomes "-". Ignores keys without a
// value, as horovodrun does. Aliases, and files with several documents, are errors.
//
// `name` is the file name to show in errors. Errors: INVALID_ARGUMENT, with the file name and the line.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfigFile(absl::string_view name, absl::string_view content);

// Converts the entries of a configuration file to options. The keys are the same as in horovodrun:
// "params.cycle-time-ms" is --cycle-time-ms, "timeline.filename" is --timeline-filename, "autotune.enabled: false" is
// --no-autotune. Any other option can be given by its long name, as a key outside all sections. In the file, options
// that take no value have the value true or false. If an option may be repeated, each element of a list counts as one
// use. For other options, the elements are joined with commas.
//
// `name` is the file name to show in errors. Errors: INVALID_ARGUMENT, with the file name, the line and the key.
absl::StatusOr<std::vector<GivenOption>> ConfigOptions(const OptionTable& table, absl::string_view name,
                                                       const std::vector<ConfigEntry>& entries);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_
