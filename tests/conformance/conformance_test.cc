// One suite for every communicator: what Communicator promises, on each backend and with several numbers of ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/communicator.h"
#include "tests/conformance/allreduce_case.h"
#include "tests/conformance/scattered_tensor.h"
#include "tests/testing/backends.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

constexpr size_t kCounts[] = {0, 1, 3, 7, 13, 127, 4096};
constexpr size_t kLargeCount = (size_t{1} << 20) + 1;

std::vector<WireFormat> WireFormatsFor(DType dtype) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return {WireFormat::kNone};
  return {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kBfloat16};
}

class ConformanceTest : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  void SetUp() override {
    const auto [backend, size] = GetParam();
    if (!IsTestable(backend, size)) GTEST_SKIP() << Name(backend) << " with " << size << " ranks cannot be tested here";
    size_ = size;
    transports_ = ConnectRanks(backend, {.size = size});
    ASSERT_EQ(transports_.size(), static_cast<size_t>(size));
  }

  int size() const { return size_; }

  // Runs `body` on every rank; a failed expectation within names the rank.
  template <typename Body>
  void OnEveryRank(const Body& body) {
    RunRanksOn(transports_, [&](RankId rank, Transport& transport) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      body(rank, *transport.communicator);
    });
  }

  // Runs `c` and checks the outputs of all ranks: bit for bit against the kernels, and against the oracle in fp64.
  void CheckAllreduce(const AllreduceCase& c, const ScatteredTensor::Options& layout) {
    SCOPED_TRACE(ToString(c));
    std::vector<std::string> inputs;
    for (RankId rank = 0; rank < size(); ++rank) inputs.push_back(MakeInput(c, rank));
    const std::string expected = ExpectedBits(c, inputs);
    EXPECT_EQ(CompareWithOracle(c, inputs, expected), "");
    OnEveryRank([&](RankId rank, Communicator& communicator) {
      const ScatteredTensor tensor(inputs[rank], SizeOf(c.dtype), layout);
      ASSERT_EQ(communicator.Reduce({.info = {.label = "tensor"},
                                     .segments = tensor.segments(),
                                     .dtype = c.dtype,
                                     .wire = c.wire,
                                     .op = c.op,
                                     .prescale = c.prescale,
                                     .postscale = c.postscale}),
                absl::OkStatus());
      EXPECT_TRUE(tensor.Output() == expected) << "the result has other bits: " << ToString(c);
      EXPECT_TRUE(tensor.IsUntouchedElsewhere()) << ToString(c);
    });
  }

  // A layout that changes from case to case, so that all of them meet all of these.
  static ScatteredTensor::Options LayoutOf(uint64_t seed) {
    return {.cut = seed % 2 == 0 ? Cut::kWhole : Cut::kPieces,
            .placement = seed / 2 % 2 == 0 ? Placement::kInPlace : Placement::kOutOfPlace,
            .seed = seed};
  }

 private:
  int size_ = 0;
  std::vector<Transport> transports_;
};

std::string ParameterName(const ::testing::TestParamInfo<ConformanceTest::ParamType>& info) {
  return absl::StrCat(Name(std::get<0>(info.param)), std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Self, ConformanceTest,
                         ::testing::Combine(::testing::Values(Backend::kSelf), ::testing::Values(1)), ParameterName);
INSTANTIATE_TEST_SUITE_P(Ranks, ConformanceTest,
                         ::testing::Combine(::testing::Values(Backend::kInProcess, Backend::kShm,
                                                              Backend::kShmSeparately),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)),
                         ParameterName);

TEST_P(ConformanceTest, AllreduceOfEveryDtypeOpAndWireFormat) {
  uint64_t seed = 0;
  for (int dtype = 0; dtype <= static_cast<int>(DType::kBool); ++dtype) {
    for (int op = 0; op < 4; ++op) {
      for (WireFormat wire : WireFormatsFor(static_cast<DType>(dtype))) {
        // Two counts each, round and round: over the suite every dtype meets every count.
        for (int repeat = 0; repeat < 2; ++repeat, ++seed) {
          CheckAllreduce({.count = kCounts[seed % std::size(kCounts)],
                          .dtype = static_cast<DType>(dtype),
                          .op = static_cast<ReduceOp>(op),
                          .wire = wire,
                          .seed = seed},
                         LayoutOf(seed));
        }
      }
    }
  }
}

TEST_P(ConformanceTest, AllreduceOfEveryCountInEveryLayout) {
  uint64_t seed = 100;
  for (size_t count : kCounts) {
    for (WireFormat wire : WireFormatsFor(DType::kFloat32)) {
      for (int layout = 0; layout < 4; ++layout, ++seed) {
        CheckAllreduce({.count = count, .wire = wire, .seed = seed}, LayoutOf(seed));
      }
    }
  }
}

TEST_P(ConformanceTest, AllreduceScalesBeforeAndAfter) {
  const kernels::Scale half = {.multiplier = 0.5};
  const kernels::Scale average = {.divisor = size()};
  uint64_t seed = 300;
  for (DType dtype : {DType::kUint8, DType::kInt8, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kBfloat16,
                      DType::kFloat32, DType::kFloat64}) {
    for (WireFormat wire : WireFormatsFor(dtype)) {
      for (const auto& [prescale, postscale] :
           {std::pair(half, kernels::Scale{}), std::pair(kernels::Scale{}, average), std::pair(half, average)}) {
        ++seed;
        CheckAllreduce(
            {.count = 1000, .dtype = dtype, .wire = wire, .prescale = prescale, .postscale = postscale, .seed = seed},
            LayoutOf(seed));
      }
    }
  }
}

TEST_P(ConformanceTest, LargeAllreduceInManyChunks) {
  if (size() > 3) GTEST_SKIP() << "covered with fewer ranks";
  CheckAllreduce({.count = kLargeCount, .seed = 1}, {.cut = Cut::kPieces, .seed = 1});
  CheckAllreduce({.count = kLargeCount, .wire = WireFormat::kFloat16, .seed = 2},
                 {.placement = Placement::kOutOfPlace});
}

TEST_P(ConformanceTest, BroadcastFromEachRoot) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{13}, size_t{4096}, size_t{1000003}}) {
    for (RankId root = 0; root < size(); ++root) {
      std::string sent(bytes, '\0');
      for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i * 31 + i / 256 + static_cast<size_t>(root));
      OnEveryRank([&](RankId rank, Communicator& communicator) {
        std::string data = rank == root ? sent : std::string(bytes, '?');
        ASSERT_EQ(communicator.Broadcast({.info = {.label = "w"}, .data = data.data(), .bytes = bytes, .root = root}),
                  absl::OkStatus());
        EXPECT_TRUE(data == sent) << bytes << " bytes from rank " << root;
      });
    }
  }
}

TEST_P(ConformanceTest, AllgatherOfDifferentLengths) {
  const auto nothing = [](RankId) { return size_t{0}; };
  const auto equal = [](RankId) { return size_t{1000}; };
  const auto odd_ranks_only = [](RankId rank) { return rank % 2 == 0 ? size_t{0} : static_cast<size_t>(rank) * 5003; };
  const auto last_rank_much = [&](RankId rank) {
    return rank == size() - 1 ? size_t{700001} : static_cast<size_t>(rank);
  };
  for (const std::function<size_t(RankId)>& length :
       std::vector<std::function<size_t(RankId)>>{nothing, equal, odd_ranks_only, last_rank_much}) {
    std::vector<size_t> bytes;
    std::string all;
    for (RankId rank = 0; rank < size(); ++rank) {
      bytes.push_back(length(rank));
      all.append(bytes.back(), static_cast<char>('a' + rank));
    }
    OnEveryRank([&](RankId rank, Communicator& communicator) {
      const std::string input(bytes[rank], static_cast<char>('a' + rank));
      std::string output(all.size(), '?');
      ASSERT_EQ(communicator.Allgather(
                    {.info = {.label = "g"}, .input = input.data(), .output = output.data(), .bytes_per_rank = bytes}),
                absl::OkStatus());
      EXPECT_TRUE(output == all);
    });
  }
}

TEST_P(ConformanceTest, NobodyPassesABarrierBeforeAllHaveArrived) {
  constexpr int kRounds = 50;
  std::atomic<int> arrivals{0};
  OnEveryRank([&](RankId, Communicator& communicator) {
    for (int round = 1; round <= kRounds; ++round) {
      arrivals.fetch_add(1);
      ASSERT_EQ(communicator.Barrier({.label = "b"}), absl::OkStatus());
      EXPECT_GE(arrivals.load(), round * size());
    }
  });
}

// Operations in random order and of random size, back to back: what one leaves behind must not disturb the next.
TEST_P(ConformanceTest, RandomSequenceOfOperations) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  constexpr int kOperations = 120;
  OnEveryRank([&](RankId rank, Communicator& communicator) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kOperations; ++i) {
      const auto op = static_cast<OpType>(random() % 4);
      const size_t count = random() % (size_t{1} << (random() % 17));
      const auto value = static_cast<int32_t>(random() % 1000);
      if (op == OpType::kAllreduce) {
        std::vector<int32_t> data(count, value + rank);
        const Segment segment = {.input = data.data(), .output = data.data(), .count = count};
        ASSERT_EQ(communicator.Reduce({.info = {.label = "r"}, .segments = {&segment, 1}, .dtype = DType::kInt32}),
                  absl::OkStatus());
        EXPECT_EQ(data, std::vector<int32_t>(count, size() * value + size() * (size() - 1) / 2));
      } else if (op == OpType::kBroadcast) {
        const RankId root = value % size();
        std::vector<int32_t> data(count, value + rank);
        ASSERT_EQ(
            communicator.Broadcast({.info = {.label = "b"}, .data = data.data(), .bytes = 4 * count, .root = root}),
            absl::OkStatus());
        EXPECT_EQ(data, std::vector<int32_t>(count, value + root));
      } else if (op == OpType::kAllgather) {
        std::vector<size_t> bytes;
        std::string all;
        for (RankId peer = 0; peer < size(); ++peer) {
          bytes.push_back(random() % (count + 1));
          all.append(bytes.back(), static_cast<char>(value + peer));
        }
        const std::string input(bytes[rank], static_cast<char>(value + rank));
        std::string output(all.size(), '?');
        ASSERT_EQ(
            communicator.Allgather(
                {.info = {.label = "g"}, .input = input.data(), .output = output.data(), .bytes_per_rank = bytes}),
            absl::OkStatus());
        EXPECT_TRUE(output == all);
      } else {
        ASSERT_EQ(communicator.Barrier({.label = "s"}), absl::OkStatus());
      }
    }
  });
}

}  // namespace
}  // namespace ronda::testing
