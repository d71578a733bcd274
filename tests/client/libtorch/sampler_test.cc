// SPDX-License-Identifier: Apache-2.0

// Tests DistributedSampler in libtorch's data loaders.
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/libtorch/small_net.h"

namespace {

using ::ronda::torch::DistributedSampler;
using ::testing::HasSubstr;

// Sample i is the number i.
class Indices : public torch::data::datasets::Dataset<Indices, std::int64_t> {
 public:
  explicit Indices(std::size_t size) : size_(size) {}
  std::int64_t get(std::size_t index) override { return static_cast<std::int64_t>(index); }
  torch::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

template <class Loader>
std::vector<std::int64_t> Epoch(Loader& loader) {
  std::vector<std::int64_t> samples;
  for (const auto& batch : loader) samples.insert(samples.end(), batch.begin(), batch.end());
  return samples;
}

auto LoaderOf(std::size_t size, const DistributedSampler& sampler, std::size_t workers = 0) {
  return torch::data::make_data_loader(Indices(size), sampler,
                                       torch::data::DataLoaderOptions().batch_size(3).workers(workers));
}

TEST(LibtorchSamplerTest, RanksSeeEachSampleOnceAnEpoch) {
  for (const int ranks : small::kRankCounts) {
    for (const std::size_t workers : {0, 2}) {
      std::vector<std::vector<std::int64_t>> epochs(2);
      for (int rank = 0; rank < ranks; ++rank) {
        DistributedSampler sampler(24, rank, ranks);
        auto loader = LoaderOf(24, sampler, workers);
        for (const int epoch : {0, 1}) {
          sampler.set_epoch(epoch);
          for (const std::int64_t sample : Epoch(*loader)) epochs[epoch].push_back(sample);
        }
      }
      EXPECT_NE(epochs[0], epochs[1]);
      for (std::vector<std::int64_t>& epoch : epochs) {
        std::sort(epoch.begin(), epoch.end());
        std::vector<std::int64_t> all(24);
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(epoch, all);
      }
    }
  }
}

TEST(LibtorchSamplerTest, TheJobSaysWhichRankItIs) {
  ronda::run_threads(2, [] {
    ronda::torch::DistributedSamplerOptions options;
    options.shuffle = false;
    const DistributedSampler sampler(5, options);
    EXPECT_EQ(sampler.remaining(), 3u);
    const auto loader = LoaderOf(5, sampler);
    EXPECT_EQ(Epoch(*loader),
              ronda::rank() == 0 ? (std::vector<std::int64_t>{0, 2, 4}) : (std::vector<std::int64_t>{1, 3, 0}));
  });
}

TEST(LibtorchSamplerTest, AnIterationBeginsTheEpochAgainUnlessItsPlaceWasSet) {
  DistributedSampler sampler(20, 0, 2);
  const auto loader = LoaderOf(20, sampler);
  const std::vector<std::int64_t> whole = Epoch(*loader);
  EXPECT_EQ(Epoch(*loader), whole);

  auto batch = loader->begin();
  const std::vector<std::int64_t> first = *batch;
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  EXPECT_EQ(sampler.state().consumed, 6);
  std::stringstream file;
  saved.save_to(file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);

  DistributedSampler resumed(20, 0, 2);
  resumed.load(archive);
  std::vector<std::int64_t> samples = first;
  const auto second_loader = LoaderOf(20, resumed);
  for (const std::int64_t sample : Epoch(*second_loader)) samples.push_back(sample);
  EXPECT_EQ(samples, whole);
  EXPECT_EQ(Epoch(*second_loader), whole) << "from the beginning again";
}

TEST(LibtorchSamplerTest, AnotherSizeIsRefused) {
  DistributedSampler sampler(20, 0, 2);
  sampler.reset(20);
  EXPECT_THAT(small::ErrorOf([&] { sampler.reset(21); }),
              HasSubstr("the dataset has 21 samples instead of 20: make a new sampler"));
}

}  // namespace
