#include "tests/testing/backend_suite.h"

namespace ronda::testing {

namespace {

// Whether the two make sense together anywhere.
bool IsMeantFor(Backend backend, int size) {
  if (backend == Backend::kSelf) return size == 1;
  // More ranks find nothing new in what is below messages.
  if (backend == Backend::kTcp) return size == 2 || size == 3;
  return !HasHosts(backend) || size > 1;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const BackendRanks& parameter) {
  return out << Name(parameter.backend) << " with " << parameter.size << " ranks";
}

std::vector<BackendRanks> EveryBackend(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all;
  for (Backend backend : {Backend::kSelf, Backend::kInProcess, Backend::kShm, Backend::kShmSeparately,
                          Backend::kHierarchical, Backend::kMpi, Backend::kTcp}) {
    for (int size : sizes) {
      if (IsMeantFor(backend, size)) all.push_back({backend, size});
    }
  }
  return all;
}

std::vector<BackendRanks> EveryBackendAndDevice(const std::vector<int>& sizes) {
  std::vector<BackendRanks> all = EveryBackend(sizes);
  for (int size : sizes) {
    // More ranks find nothing new in what is on top of another backend.
    if (size <= 4) all.push_back({Backend::kStaged, size});
    all.push_back({Backend::kNccl, size});
    // Ranks on hosts of equal sizes and not; on three hosts, and in no order.
    if (size == 3 || size == 4) all.push_back({Backend::kHierarchicalStaged, size});
    if (size == 3 || size == 8) all.push_back({Backend::kHierarchicalNccl, size});
  }
  return all;
}

std::vector<BackendRanks> EveryFlatBackend(const std::vector<int>& sizes) {
  std::vector<BackendRanks> flat = EveryBackend(sizes);
  std::erase_if(flat, [](const BackendRanks& ranks) { return ranks.backend == Backend::kHierarchical; });
  return flat;
}

std::string NameOfBackendRanks(const ::testing::TestParamInfo<BackendRanks>& info) {
  return absl::StrCat(Name(info.param.backend), info.param.size);
}

void BackendTest::SetUp() {
  const auto [backend, size] = GetParam();
  if (!IsTestable(backend, size)) GTEST_SKIP() << GetParam() << " cannot be tested here";
  transports_ = ConnectRanks(backend, {.size = size});
  ASSERT_EQ(transports_.size(), static_cast<size_t>(size));
}

void BackendTest::TearDown() {
  OnEveryRank([](RankId, Transport& transport) { transport.communicator.reset(); });
}

}  // namespace ronda::testing
