// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_
#define RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/options/command_line.h"

namespace ronda {

// One value, or one list of values, in a configuration file.
struct ConfigEntry {
  std::string key;                  // with the enclosing keys: "params.cycle-time-ms"
  std::vector<std::string> values;  // one, or the elements of a list
  int line = 0;                     // of the value, counted from 1

  bool operator==(const ConfigEntry&) const = default;
};

// Reads YAML: maps of maps, of scalars, and of lists of scalars. In keys, "_" becomes "-". The function ignores keys
// without a value, as horovodrun does. Aliases, and several documents in a file, are errors.
//
// Errors show `name` as the file's name.
// Errors: INVALID_ARGUMENT with the file's name and the line.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfigFile(absl::string_view name, absl::string_view content);

// Turns the entries of a configuration file into options, by horovodrun's keys: "params.cycle-time-ms" is
// --cycle-time-ms, "timeline.filename" is --timeline-filename, "autotune.enabled: false" is --no-autotune. Every other
// option can be given by its long name, as a key outside of all sections. Options that take no value have the value
// true or false in the file. If an option may be repeated, each element of a list is one use of the option. For other
// options, the function joins the elements with commas.
//
// Errors show `name` as the file's name.
// Errors: INVALID_ARGUMENT with the file's name, the line and the key.
absl::StatusOr<std::vector<GivenOption>> ConfigOptions(const OptionTable& table, absl::string_view name,
                                                       const std::vector<ConfigEntry>& entries);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_CONFIG_FILE_H_
