// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/place_variables.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

// One number of a rank's place, with the variables of Ronda and of other launchers for this number.
struct PlaceNumber {
  int Topology::*number;
  VariableName rondas;
  VariableName torchruns;
  VariableName horovodruns;

  bool Has(absl::string_view name) const {
    const VariableName names[] = {rondas, torchruns, horovodruns};
    return std::any_of(std::begin(names), std::end(names),
                       [&](VariableName own) { return own.exists() && own.view() == name; });
  }
};

constexpr PlaceNumber kRank = {&Topology::rank, "RONDA_RANK", "RANK", "HOROVOD_RANK"};
constexpr PlaceNumber kSize = {&Topology::size, "RONDA_SIZE", "WORLD_SIZE", "HOROVOD_SIZE"};
constexpr PlaceNumber kLocalRank = {&Topology::local_rank, "RONDA_LOCAL_RANK", "LOCAL_RANK", "HOROVOD_LOCAL_RANK"};
constexpr PlaceNumber kLocalSize = {&Topology::local_size, "RONDA_LOCAL_SIZE", "LOCAL_WORLD_SIZE",
                                    "HOROVOD_LOCAL_SIZE"};
// torchrun has no variables for the cross rank and the cross size.
constexpr PlaceNumber kCrossRank = {&Topology::cross_rank, "RONDA_CROSS_RANK", VariableName(), "HOROVOD_CROSS_RANK"};
constexpr PlaceNumber kCrossSize = {&Topology::cross_size, "RONDA_CROSS_SIZE", VariableName(), "HOROVOD_CROSS_SIZE"};
constexpr PlaceNumber kPlace[] = {kRank, kSize, kLocalRank, kLocalSize, kCrossRank, kCrossSize};

constexpr absl::string_view kHost = "GROUP_RANK";

std::string Assignment(VariableName name, int value) { return absl::StrCat(name.view(), "=", value); }

void AddOfOthers(const PlaceNumber& number, const Topology& topology, std::vector<std::string>* variables) {
  for (const VariableName name : {number.torchruns, number.horovodruns}) {
    if (name.exists()) variables->push_back(Assignment(name, topology.*number.number));
  }
}

std::vector<std::string> RondasVariables(const Topology& topology) {
  std::vector<std::string> variables;
  for (const PlaceNumber& number : kPlace) variables.push_back(Assignment(number.rondas, topology.*number.number));
  return variables;
}

// Returns a shell command that sets all variables of `number` to `value`, as expanded by the shell. If the expansion is
// empty, the command sets no variable.
std::string SetAll(const PlaceNumber& number, absl::string_view value) {
  std::string names;
  for (const VariableName name : {number.rondas, number.torchruns, number.horovodruns}) {
    if (name.exists()) absl::StrAppend(&names, names.empty() ? "" : " ", name.view());
  }
  return absl::StrCat("ronda_set \"", value, "\" ", names, "; ");
}

std::string ValueOf(absl::string_view variable) { return absl::StrCat("$", variable); }

}  // namespace

bool IsPlaceVariable(absl::string_view name) {
  return name == kHost ||
         std::any_of(std::begin(kPlace), std::end(kPlace), [&](const PlaceNumber& number) { return number.Has(name); });
}

std::vector<std::string> PlaceVariables(const Topology& topology, int host) {
  std::vector<std::string> variables = RondasVariables(topology);
  for (const PlaceNumber& number : kPlace) AddOfOthers(number, topology, &variables);
  variables.push_back(absl::StrCat(kHost, "=", host));
  return variables;
}

std::vector<std::string> SlotVariables(int slot, int slots) {
  const Topology place = {.rank = slot, .size = slots, .local_rank = slot, .local_size = slots};
  std::vector<std::string> variables = RondasVariables(place);
  for (const PlaceNumber& number : {kLocalRank, kLocalSize}) AddOfOthers(number, place, &variables);
  return variables;
}

std::string PlaceScript(const MpirunPlace& mpirun, int rank_count, int ranks_per_host) {
  // No other program uses these names (ronda_set, ronda_value, ronda_name). If the environment already had a variable
  // with such a name, the rank would see the value that this script assigns.
  std::string script =
      "ronda_set() { ronda_value=$1; shift; test -z \"$ronda_value\" || for ronda_name; do export "
      "\"$ronda_name=$ronda_value\"; done; }; ";
  absl::StrAppend(&script, SetAll(kRank, ValueOf(mpirun.rank)), SetAll(kSize, ValueOf(mpirun.size)),
                  SetAll(kLocalRank, ValueOf(mpirun.local_rank)), SetAll(kLocalSize, ValueOf(mpirun.local_size)));
  if (ranks_per_host == 0) return script;
  const std::string host = absl::StrCat("$((", mpirun.rank, " / ", ranks_per_host, "))");
  absl::StrAppend(&script, "ronda_set \"", host, "\" ", kHost, "; ", SetAll(kCrossRank, host),
                  SetAll(kCrossSize, absl::StrCat(rank_count / ranks_per_host)));
  return script;
}

}  // namespace ronda
