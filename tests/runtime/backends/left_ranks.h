// SPDX-License-Identifier: Apache-2.0

// A program that all ranks of a job run, and in which the last rank gives up. The program has its own file, because
// other programs use the C++ API, which has a different class Handle.
#ifndef RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
#define RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_

namespace ronda::testing {

// Connects to the other ranks as the environment variables say. The last rank then ends without a shutdown. The other
// ranks wait for it, and print the failure that they get. WORDS names a directory, which must be empty.
void IsLeftByTheLastRank();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
