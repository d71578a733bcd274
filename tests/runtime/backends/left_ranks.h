// SPDX-License-Identifier: Apache-2.0

// A program for all ranks of a job, of which the last rank gives up. The program has its own file, because the C++ API,
// which other programs use, has a different class Handle.
#ifndef RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
#define RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_

namespace ronda::testing {

// Connects to the other ranks as the environment says. The last rank then ends without a shutdown. The other ranks wait
// for the last rank, and print the failure that they get. WORDS names a directory, which is empty at first.
void IsLeftByTheLastRank();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
