#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_OPTION_TABLE_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_OPTION_TABLE_H_

#include "absl/strings/string_view.h"
#include "runtime/launch/options/command_line.h"
#include "runtime/launch/options/draft.h"

namespace ronda {

// The first name of the option that reads more options from a file.
inline constexpr absl::string_view kConfigFileOption = "--config-file";

// All options of rondarun: horovodrun's, torchrun's, Paddle's, mpirun's -x and Ronda's own. The text of --help, keys of
// configuration files, errors about unknown names and the test of the manual derive from this table, so a new option is
// a row here, its effect if that is a new one (draft.h), and a line of docs/rondarun.md.
//
// The options write to `draft`, which must outlive their use.
OptionTable RondarunOptions(CommandLineDraft* draft);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_OPTION_TABLE_H_
