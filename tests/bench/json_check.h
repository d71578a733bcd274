#ifndef RONDA_TESTS_BENCH_JSON_CHECK_H_
#define RONDA_TESTS_BENCH_JSON_CHECK_H_

#include <string>

namespace ronda::bench {

// Whether `text` is one JSON value (RFC 8259): "" if so, else where and why not.
std::string FindJsonError(const std::string& text);

}  // namespace ronda::bench

#endif  // RONDA_TESTS_BENCH_JSON_CHECK_H_
