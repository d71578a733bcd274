#ifndef RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_
#define RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_

#include <string>

namespace ronda {

// The text of --check-build: what this build of Ronda contains, and what it does not.
std::string BuildReport();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_
