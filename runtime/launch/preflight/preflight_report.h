// The report of rondarun --check, and the facts that it is made of. Pure, so that tests can try any mixture of hosts.
#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_PREFLIGHT_REPORT_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_PREFLIGHT_REPORT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// By name. A fact that a host does not have, or a probe of another version does not know, is absent.
using HostFacts = std::map<std::string, std::string>;

// Sizes are in bytes, as decimal numbers.
namespace fact {
inline constexpr char kVersion[] = "version";                // Ronda's
inline constexpr char kProgram[] = "program";                // the path of rondarun
inline constexpr char kCores[] = "cores";                    // that rondarun may use
inline constexpr char kNumaNodes[] = "numa";                 // memory nodes
inline constexpr char kMemory[] = "memory";                  // of the host
inline constexpr char kShmSize[] = "shm_size";               // of /dev/shm
inline constexpr char kShmFree[] = "shm_free";               // the free part of it
inline constexpr char kMpi[] = "mpi";                        // "Open MPI 4.1.4"
inline constexpr char kNoMpiPlugin[] = "no_mpi_plugin";      // why ranks that its mpirun starts cannot use it
inline constexpr char kNoHostsPlugin[] = "no_hosts_plugin";  // why ranks cannot meet those of other hosts
inline constexpr char kGpus[] = "gpus";                      // "8 x NVIDIA H200"
inline constexpr char kCuda[] = "cuda";                      // that the driver supports: "12.4"
inline constexpr char kNccl[] = "nccl";                      // "2.18.5"
inline constexpr char kAddress[] = "address";                // numeric, where others reach this host
inline constexpr char kNoAddress[] = "no_address";           // why there is none
inline constexpr char kPort[] = "port";                      // where the probe answers
}  // namespace fact

// The fact, or "" if it is absent.
std::string FactOr(const HostFacts& facts, absl::string_view name);

// A fact as a number; 0 if it is absent or none.
double NumberOf(const HostFacts& facts, absl::string_view name);

// "name=value", a line each. Line breaks in values become blanks.
std::string FormatFacts(const HostFacts& facts);

// Notes the fact that `line` has; other lines, such as those of a login shell, are left out.
void ParseFact(absl::string_view line, HostFacts* facts);

// The findings about a host.
struct ProbedHost {
  // An attempt to connect from this host to another.
  struct Unreached {
    std::string host;
    std::string reason;
  };

  std::string host;     // as the user calls it
  int slots = 0;        // ranks it is to take; 0: unknown
  absl::Status status;  // why there are no facts
  HostFacts facts;
  absl::Duration clock_skew;       // how far its clock is ahead of that of the host that checks
  absl::Duration clock_precision;  // and how far that may be off
  std::vector<Unreached> unreached;
};

struct PreflightReport {
  std::string text;                   // a table, a line a host, then problems and notes
  std::vector<std::string> problems;  // that keep a job from running; part of the text
};

// The programs that may start the ranks of several hosts. Agents over ssh need no MPI.
enum class Starters { kMpirunOrSsh, kSsh };

PreflightReport MakePreflightReport(const std::vector<ProbedHost>& hosts, Starters starters = Starters::kMpirunOrSsh);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PREFLIGHT_PREFLIGHT_REPORT_H_
