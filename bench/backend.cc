#include "bench/backend.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda::bench {
namespace {

constexpr size_t kTakingTurns = 2;  // the first ones

std::vector<std::string> NamesOfThoseTakingTurns() {
  return {BackendNames().begin(), BackendNames().begin() + kTakingTurns};
}

std::vector<std::string> NamesOfTheOthers() { return {BackendNames().begin() + kTakingTurns, BackendNames().end()}; }

bool IsOneOf(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status ReadBackends(const std::string& text, std::vector<Backend>* backends) {
  std::vector<std::string> names = {text};
  if (!IsOneOf(NamesOfTheOthers(), text)) {
    const absl::Status read = ChoiceList(&names, NamesOfThoseTakingTurns())(text);
    if (!read.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(read.message(), ", or one of ", absl::StrJoin(NamesOfTheOthers(), ", ")));
    }
  }
  backends->clear();
  std::transform(names.begin(), names.end(), std::back_inserter(*backends), BackendOf);
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& BackendNames() {
  static const auto* const names = new std::vector<std::string>{
      "shm", "inprocess", "mpi", "tcp", "hierarchical", "hierarchical-mpi", "hierarchical-tcp"};
  return *names;
}

const std::string& Name(Backend backend) { return BackendNames()[static_cast<size_t>(backend)]; }

Backend BackendOf(const std::string& name) {
  const std::vector<std::string>& names = BackendNames();
  return static_cast<Backend>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::string JobBackend(const std::vector<Backend>& backends) {
  for (const Backend backend : backends) {
    if (static_cast<size_t>(backend) >= kTakingTurns) return Name(backend);
  }
  return "";
}

void AddBackendFlag(Flags* flags, const std::string& purpose, std::vector<Backend>* backends) {
  flags->Add({.names = {"--backend"},
              .value = "LIST",
              .help = absl::StrCat(purpose, ": ", absl::StrJoin(NamesOfThoseTakingTurns(), ", "),
                                   ", or all (shm). inprocess runs the ranks as threads\n"
                                   "of the first process. Or one of ",
                                   absl::StrJoin(NamesOfTheOthers(), ", "),
                                   ",\nwhich sets RONDA_BACKEND for the whole job; what needs MPI is started by Open "
                                   "MPI's mpirun.\nAcross hosts shm stands for the backend that ronda::init() would "
                                   "choose.")},
             [backends](const std::string& text) { return ReadBackends(text, backends); });
}

}  // namespace ronda::bench
