// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/conformance_suite.h"

#include <algorithm>
#include <set>

#include "runtime/collectives/communicator.h"

namespace ronda::testing {

namespace {

// Returns the largest number of contributions that NCCL reduces at once. `levels` has the hosts that are reduced first;
// it is empty if the reduction has one level.
size_t AddedUpByNccl(Backend backend, const HostMap& levels, size_t contributions) {
  const bool is_flat = levels.hosts.empty();
  const size_t on_a_host = is_flat ? 0 : static_cast<size_t>(SizesOf(levels).most);
  if (backend == Backend::kNccl) return contributions;
  if (backend == Backend::kHierarchicalStaged) return on_a_host;
  if (backend == Backend::kHierarchicalNccl) return is_flat ? contributions : std::max(on_a_host, levels.hosts.size());
  return 0;
}

// If a result may differ from the result in rank order, returns how many times it is rounded. Returns 0 if both must
// have the same bits. NCCL adds in a different order if there are more than two contributions. It rounds 16-bit sums
// after every addition and after the multiplication by a factor.
int RoundingsOfNccl(Backend backend, const ReduceCase& c, const HostMap& levels, size_t contributions) {
  const DType wire = WireDType(c.dtype, c.wire);
  const bool is_fp8 = c.wire == WireFormat::kFp8E4M3 || c.wire == WireFormat::kFp8E5M2;
  const size_t added = AddedUpByNccl(backend, levels, contributions);
  if (added == 0 || is_fp8 || !IsFloatingPoint(wire)) return 0;
  const int count = levels.hosts.empty() ? 1 : 2;
  if (SizeOf(wire) < sizeof(float)) return c.op == ReduceOp::kSum ? count + static_cast<int>(contributions) : 0;
  return added > 2 && (c.op == ReduceOp::kSum || c.op == ReduceOp::kProduct) ? count : 0;
}

int CountOf(const HostMap& levels) { return levels.hosts.empty() ? 1 : 2; }

PartRange PartOf(const ReduceCase& c, size_t segment, int member, int members) {
  const Part part = PartsOf(c, member, members)[segment];
  return {.begin = part.begin, .count = part.count};
}

}  // namespace

ReduceCall CallOf(const ReduceCase& c, const CallInfo& info) {
  return {.info = info,
          .dtype = c.dtype,
          .wire = c.wire,
          .op = c.op,
          .prescale = c.prescale,
          .postscale = c.postscale,
          .delivery = c.receives == Receives::kAll ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts};
}

std::vector<Group> ConformanceTest::Groups() const {
  std::vector<RankId> even;
  std::vector<RankId> odd;
  for (RankId rank = 0; rank < size(); ++rank) (rank % 2 == 0 ? even : odd).push_back(rank);
  std::set<std::vector<RankId>> distinct = {
      Group::All(size()).ranks(), {0}, {size() - 1}, even, odd, Group::All(size()).Without({0}).ranks()};
  distinct.erase(std::vector<RankId>{});
  std::vector<Group> groups;
  for (const std::vector<RankId>& ranks : distinct) groups.emplace_back(ranks);
  return groups;
}

HostMap ConformanceTest::LevelsOf(Receives receives, const Group* group) const {
  const bool is_of_all = group == nullptr || group->size() == size();
  return is_of_all && receives == Receives::kAll ? hosts() : HostMap();
}

std::string ConformanceTest::CheckResult(const ReduceCase& c, const std::vector<std::string>& inputs,
                                         const std::string& output) const {
  const int roundings = RoundingsOfNccl(GetParam().backend, c, hosts(), inputs.size());
  if (roundings > 0) return CompareWithOracle(c, inputs, output, roundings);
  return output == ExpectedBits(c, inputs, hosts()) ? "" : "the result has other bits";
}

ConformanceTest::Prepared ConformanceTest::Prepare(const ReduceCase& c, const Group* group) const {
  const int members = group == nullptr ? size() : group->size();
  Prepared prepared;
  for (int member = 0; member < members; ++member) prepared.inputs.push_back(MakeInput(c, member));
  prepared.whole = ExpectedBits(c, prepared.inputs, LevelsOf(c.receives, group));
  return prepared;
}

void ConformanceTest::CheckReduces(const std::vector<ReduceCase>& cases, const Group* group) {
  const int members = group == nullptr ? size() : group->size();
  std::vector<Prepared> prepared;
  for (const ReduceCase& c : cases) {
    prepared.push_back(Prepare(c, group));
    const int levels = CountOf(LevelsOf(c.receives, group));
    EXPECT_EQ(CompareWithOracle(c, prepared.back().inputs, prepared.back().whole, levels), "") << ToString(c);
  }
  OnEveryRank([&](RankId rank, Transport& transport) {
    const Members self(Info("", group), rank, size());
    for (size_t i = 0; i < cases.size() && !HasFatalFailure(); ++i) {
      if (self.IncludeSelf()) {
        RunAsMember(cases[i], prepared[i], self.self(), members, group, *transport.communicator);
      } else {
        RunAsOutsider(cases[i], group, *transport.communicator);
      }
    }
  });
}

void ConformanceTest::RunAsMember(const ReduceCase& c, const Prepared& prepared, int position, int members,
                                  const Group* group, Communicator& communicator) const {
  const std::string& input = prepared.inputs[position];
  const std::vector<size_t> counts = SegmentCounts(c);
  const bool receives_all = c.receives == Receives::kAll;
  const ScatteredTensor tensor = receives_all
                                     ? ScatteredTensor(input, SizeOf(c.dtype), counts, c.placement)
                                     : ScatteredTensor(input, SizeOf(c.dtype), counts, PartsOf(c, position, members));
  ReduceCall call = CallOf(c, Info("tensor", group));
  call.segments = tensor.segments();
  const auto part_of = [&](size_t segment, int member) { return PartOf(c, segment, member, members); };
  const ReduceCall::PartOf known_parts = part_of;
  if (!receives_all && c.seed % 2 == 0) call.part_of = &known_parts;
  ASSERT_EQ(communicator.Reduce(call), absl::OkStatus()) << ToString(c);
  const HostMap levels = LevelsOf(c.receives, group);
  if (const int roundings = RoundingsOfNccl(GetParam().backend, c, levels, prepared.inputs.size()); roundings > 0) {
    const std::string whole =
        receives_all ? tensor.Output() : WithParts(c, prepared.whole, tensor.Output(), position, members);
    EXPECT_EQ(CompareWithOracle(c, prepared.inputs, whole, roundings), "") << ToString(c);
  } else {
    const std::string expected = receives_all ? prepared.whole : ReceivedBy(c, prepared.whole, position, members);
    EXPECT_TRUE(tensor.Output() == expected) << "the result has other bits: " << ToString(c);
  }
  EXPECT_TRUE(tensor.IsUntouchedElsewhere()) << ToString(c);
}

// Ranks outside the group pass only the lengths of the tensors.
void ConformanceTest::RunAsOutsider(const ReduceCase& c, const Group* group, Communicator& communicator) {
  std::vector<Segment> segments;
  for (size_t count : SegmentCounts(c)) segments.push_back({.count = count});
  ReduceCall call = CallOf(c, Info("tensor", group));
  call.segments = segments;
  ASSERT_EQ(communicator.Reduce(call), absl::OkStatus()) << ToString(c);
}

}  // namespace ronda::testing
