// What hosts say of themselves before a job (rondarun --check): pairs of names and texts, one a line.
#ifndef RONDA_RUNTIME_LAUNCH_HOST_FACTS_H_
#define RONDA_RUNTIME_LAUNCH_HOST_FACTS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace ronda {

// By name. What a host does not have is absent; so is what a probe of another version does not know.
using HostFacts = std::map<std::string, std::string>;

// Sizes are in bytes, as decimal numbers.
namespace fact {
inline constexpr char kVersion[] = "version";       // Ronda's
inline constexpr char kProgram[] = "program";       // the path of rondarun
inline constexpr char kCores[] = "cores";           // that rondarun may use
inline constexpr char kNumaNodes[] = "numa";        // memory nodes
inline constexpr char kMemory[] = "memory";         // of the host
inline constexpr char kShmSize[] = "shm_size";      // of /dev/shm
inline constexpr char kShmFree[] = "shm_free";      // and what is free of it
inline constexpr char kMpi[] = "mpi";               // "Open MPI 4.1.4"
inline constexpr char kGpus[] = "gpus";             // "8 x NVIDIA H200"
inline constexpr char kCuda[] = "cuda";             // that the driver supports: "12.4"
inline constexpr char kNccl[] = "nccl";             // "2.18.5"
inline constexpr char kAddress[] = "address";       // numeric, where others reach this host
inline constexpr char kNoAddress[] = "no_address";  // why there is none
inline constexpr char kPort[] = "port";             // where the probe answers
}  // namespace fact

// The fact, or "" if it is absent.
std::string FactOr(const HostFacts& facts, absl::string_view name);

// A fact as a number; 0 if it is absent or none.
double NumberOf(const HostFacts& facts, absl::string_view name);

// "name=value", a line each. Line breaks in values become blanks.
std::string FormatFacts(const HostFacts& facts);

// Notes the fact that `line` has; others, such as what a login shell prints, are left out.
void ParseFact(absl::string_view line, HostFacts* facts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_HOST_FACTS_H_
