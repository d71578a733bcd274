#ifndef RONDA_RUNTIME_LAUNCH_HELP_TEXT_H_
#define RONDA_RUNTIME_LAUNCH_HELP_TEXT_H_

#include <string>

namespace ronda {

// One line: how to call rondarun.
std::string UsageLine();

// The text of --help.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_HELP_TEXT_H_
