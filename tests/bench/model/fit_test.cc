#include "bench/model/fit.h"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/model/allreduce_cost.h"
#include "bench/model/constants.h"
#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

// What was measured with some number of ranks, in bytes and seconds.
std::vector<Sample> Recorded(int ranks) {
  std::ifstream file("tests/bench/model/testdata/allreduce_" + std::to_string(ranks) + "_ranks.txt");
  std::vector<Sample> samples;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Sample sample;
    words >> sample.x >> sample.y;
    sample.y *= 1e-6;
    samples.push_back(sample);
  }
  return samples;
}

std::vector<Sample> AtLeast(double bytes, const std::vector<Sample>& samples) {
  std::vector<Sample> kept;
  for (const Sample& sample : samples) {
    if (sample.x >= bytes) kept.push_back(sample);
  }
  return kept;
}

// One line each for small messages, for those that stay in the caches, and for those that do not.
constexpr PiecewiseOptions kRegimes = {.most_pieces = 3, .samples_a_piece = 2};

// Where one regime ends and the next begins has to be measured: it cannot be told from other sizes.
bool IsEdge(double bytes) {
  const std::set<double> edges = {8 << 10, 16 << 10, 4 << 20, 8 << 20, 16 << 20};
  return edges.count(bytes) > 0;
}

// Fits every second size and the edges, and expects the others to be predicted within 15 %.
void ExpectHeldOutSizesArePredicted(const std::vector<Sample>& samples) {
  for (const size_t parity : {0, 1}) {
    std::vector<Sample> fitted;
    std::vector<Sample> held_out;
    for (size_t i = 0; i < samples.size(); ++i) {
      (i % 2 == parity && !IsEdge(samples[i].x) ? held_out : fitted).push_back(samples[i]);
    }
    ASSERT_GE(held_out.size(), 4u);
    const PiecewiseLine line = FitPieces(fitted, kRegimes);
    for (const Sample& sample : held_out) {
      EXPECT_NEAR(line.At(sample.x) / sample.y, 1, 0.15) << sample.x << " bytes";
    }
  }
}

TEST(FitTest, LineThroughExactSamplesIsFound) {
  const Line line = FitLine({{1, 5}, {10, 23}, {1000, 2003}});
  EXPECT_NEAR(line.alpha, 3, 1e-9);
  EXPECT_NEAR(line.beta, 2, 1e-9);
  EXPECT_NEAR(line.At(7), 17, 1e-9);
}

TEST(FitTest, SmallTimesCountAsMuchAsLargeOnes) {
  // The large ones are a fifth off y = 1 + x; an absolute fit would put 800,000 at the small ones.
  const Line line = FitLine({{1, 2}, {2, 3}, {1e6, 1.2e6}, {2e6, 1.6e6}});
  EXPECT_NEAR(line.At(1), 2, 0.4);
}

TEST(FitTest, NeitherLatencyNorSlopeIsNegative) {
  const Line rising = FitLine({{1, 0.5}, {2, 2}, {3, 6}});
  EXPECT_EQ(rising.alpha, 0);
  EXPECT_GT(rising.beta, 0);
  const Line falling = FitLine({{1, 3}, {2, 2}, {3, 1}});
  EXPECT_EQ(falling.beta, 0);
  EXPECT_GT(falling.alpha, 0);
}

TEST(FitTest, PiecesAreFoundWhereTheSlopeChanges) {
  std::vector<Sample> samples;
  for (double x = 1; x <= 1 << 20; x *= 2) samples.push_back({x, x < 1000 ? 10 + x : 500 + 3 * x});
  const PiecewiseLine line = FitPieces(samples, {.most_pieces = 2, .samples_a_piece = 3});
  ASSERT_EQ(line.pieces().size(), 2u);
  EXPECT_EQ(line.pieces()[0].from, 0);
  EXPECT_NEAR(line.pieces()[1].from, std::sqrt(512.0 * 1024), 1e-6);
  for (const Sample& sample : samples) EXPECT_NEAR(line.At(sample.x), sample.y, 1e-6 * sample.y);
}

TEST(FitTest, OnePieceIsALine) {
  const std::vector<Sample> samples = {{1, 2}, {2, 3}, {4, 6}, {8, 9}};
  const PiecewiseLine line = FitPieces(samples, {.most_pieces = 1, .samples_a_piece = 2});
  ASSERT_EQ(line.pieces().size(), 1u);
  EXPECT_EQ(line.At(3), FitLine(samples).At(3));
}

TEST(FitTest, TwoRanksAreMetAtSizesThatWereNotFitted) { ExpectHeldOutSizesArePredicted(Recorded(2)); }

// Below, four ranks on two cores depend on when the scheduler changes between them.
TEST(FitTest, FourRanksAreMetAtSizesThatWereNotFitted) {
  ExpectHeldOutSizesArePredicted(AtLeast(64 << 10, Recorded(4)));
}

TEST(FitTest, ConstantsOfTheHostAreThoseOfTwoRanks) {
  const std::vector<PiecewiseLine::Piece> pieces = FitPieces(Recorded(2), kRegimes).pieces();
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_NEAR(MessageLatency(MeasuredHost()) / (pieces[0].line.alpha / 2), 1, 0.05);
  EXPECT_NEAR(MeasuredHost().gap_per_byte / pieces[2].line.beta, 1, 0.05);
}

TEST(FitTest, RingFormulaMeetsTwoRanksInMemory) {
  const Cluster host = {.local_size = 2, .host = MeasuredHost(), .network = {}};
  for (const Sample& sample : AtLeast(16 << 20, Recorded(2))) {
    EXPECT_NEAR(AllreduceTime(Algorithm::kRing, host, 2, sample.x) / sample.y, 1, 0.15) << sample.x << " bytes";
  }
}

// Two ranks on each core: every byte takes its core twice as long.
TEST(FitTest, RingFormulaCarriesTwoRanksInCacheOverToFour) {
  const std::vector<PiecewiseLine::Piece> pieces = FitPieces(Recorded(2), kRegimes).pieces();
  ASSERT_EQ(pieces.size(), 3u);
  const Cluster host = {.local_size = 4, .host = {.gap_per_byte = 2 * pieces[1].line.beta}, .network = {}};
  int compared = 0;
  for (const Sample& sample : AtLeast(128 << 10, Recorded(4))) {
    if (sample.x > (2 << 20)) continue;
    EXPECT_NEAR(AllreduceTime(Algorithm::kRing, host, 4, sample.x) / sample.y, 1, 0.15) << sample.x << " bytes";
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

}  // namespace
}  // namespace ronda::bench::model
