// SPDX-License-Identifier: Apache-2.0

// The report of rondarun --check, and the facts on which it is based. All functions are pure, so that tests can try any
// combination of hosts.
#ifndef RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_REPORT_H_
#define RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_REPORT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// The facts about a host, by name. A fact is absent if it does not apply to the host, or if the probe is of a version
// that does not report it.
using HostFacts = std::map<std::string, std::string>;

// Sizes are in bytes, as decimal numbers.
namespace fact {
inline constexpr char kVersion[] = "version";                // Ronda's
inline constexpr char kProgram[] = "program";                // the path of rondarun
inline constexpr char kCores[] = "cores";                    // that rondarun may use
inline constexpr char kNumaNodes[] = "numa";                 // memory nodes
inline constexpr char kMemory[] = "memory";                  // of the host
inline constexpr char kMpi[] = "mpi";                        // "Open MPI 4.1.4"
inline constexpr char kNoMpiPlugin[] = "no_mpi_plugin";      // why ranks that its mpirun starts cannot use it
inline constexpr char kNoHostsPlugin[] = "no_hosts_plugin";  // why ranks cannot meet ranks of other hosts
inline constexpr char kGpus[] = "gpus";                      // "8 x NVIDIA H200"
inline constexpr char kCuda[] = "cuda";                      // that the driver supports: "12.4"
inline constexpr char kNccl[] = "nccl";                      // "2.18.5"
inline constexpr char kAddress[] = "address";                // numeric, where others reach this host
inline constexpr char kNoAddress[] = "no_address";           // why it has none
inline constexpr char kPort[] = "port";                      // where the probe answers
}  // namespace fact

// Returns the fact `name`, or "" if it is absent.
std::string FactOr(const HostFacts& facts, absl::string_view name);

// Returns the fact `name` as a number, or 0 if it is absent or not a number.
double NumberOf(const HostFacts& facts, absl::string_view name);

// Formats the facts as lines "name=value". Line breaks in values become blanks.
std::string FormatFacts(const HostFacts& facts);

// Adds the fact on `line`. Ignores lines of any other form, such as the greeting of a login shell.
void ParseFact(absl::string_view line, HostFacts* facts);

// The results of checking a host.
struct ProbedHost {
  // A failed attempt to connect from this host to another.
  struct Unreached {
    std::string host;
    std::string reason;
  };

  std::string host;     // as the user calls it
  int slots = 0;        // ranks that it is to take; 0: unknown
  absl::Status status;  // why there are no facts
  HostFacts facts;
  absl::Duration clock_skew;       // how far its clock is ahead of the checking host's
  absl::Duration clock_precision;  // the possible error of clock_skew
  std::vector<Unreached> unreached;
};

struct PreflightReport {
  std::string text;                   // a table with a line per host, then problems and notes
  std::vector<std::string> problems;  // that prevent a job; part of the text
};

// What can start ranks on several hosts. Agents over ssh do not need MPI.
enum class Starters { kMpirunOrSsh, kSsh };

PreflightReport MakePreflightReport(const std::vector<ProbedHost>& hosts, Starters starters = Starters::kMpirunOrSsh);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PREFLIGHT_PREFLIGHT_REPORT_H_
