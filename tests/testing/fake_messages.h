// Messages between ranks that are threads of a test.
#ifndef RONDA_TESTS_TESTING_FAKE_MESSAGES_H_
#define RONDA_TESTS_TESTING_FAKE_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collectives/messages/point_to_point.h"

namespace ronda::testing {

// The ends of `size` ranks, as strict about buffers as an MPI may be: each rank's memory is touched by that rank's own
// calls only; some messages are read at once, others, by the numbers that follow from `seed`, only when they have been
// asked for and a few calls have passed. A message of another size than its receiver names is an error.
//
// Thread-safe as a whole; each end as PointToPoint says.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_MESSAGES_H_
