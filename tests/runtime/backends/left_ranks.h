// The program of ranks of which the last gives up; apart from programs of the C++ API, which has a Handle of its own.
#ifndef RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
#define RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_

namespace ronda::testing {

// Finds the others as the environment says. Then the last rank ends without shutdown, while the others wait for it and
// print the failure that they get. WORDS names a directory that is empty at first.
void IsLeftByTheLastRank();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_BACKENDS_LEFT_RANKS_H_
