// Jobs whose tensors travel as messages, inside one test: every rank is a thread.
#ifndef RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/collectives/transport.h"

namespace ronda::testing {

// One transport a rank: a MessageCommunicator over fake messages (fake_messages.h, with this seed), in chunks so small
// that little data takes many, and a control plane within the process.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// The same over TCP on loopback. Fails the test, and returns nothing, if the ranks do not connect.
std::vector<Transport> ConnectTcpTransports(int size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
