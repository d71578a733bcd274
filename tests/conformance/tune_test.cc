// SPDX-License-Identifier: Apache-2.0

// Tests that the chunk size can change between calls.
#include <gtest/gtest.h>

#include <vector>

#include "tests/conformance/conformance_suite.h"

namespace ronda::testing {
namespace {

class TuneConformanceTest : public ConformanceTest {};

RONDA_CONFORMANCE_SUITE(TuneConformanceTest);

// Some sizes can be used as they are, and others must be rounded. They range from far too small to larger than any
// ring.
TEST_P(TuneConformanceTest, ResultsDoNotDependOnTheSizeOfChunks) {
  uint64_t seed = 200;
  for (size_t chunk_bytes : {size_t{64} << 20, size_t{1}, size_t{8192}, size_t{0}}) {
    OnEveryRank([&](RankId, Transport& transport) { transport.communicator->Tune({.chunk_bytes = chunk_bytes}); });
    CheckReduces({{.count = 8'011, .cut = Cut::kPieces, .seed = ++seed},
                  {.count = 8'011, .wire = WireFormat::kFp8E4M3, .seed = ++seed},
                  {.count = 8'011, .receives = Receives::kRows, .cut = Cut::kPieces, .seed = ++seed}});
  }
}

}  // namespace
}  // namespace ronda::testing
