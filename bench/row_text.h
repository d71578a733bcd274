#ifndef RONDA_BENCH_ROW_TEXT_H_
#define RONDA_BENCH_ROW_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "bench/results.h"

namespace ronda::bench {

// A row as one line of printable characters, on its way from rank 0 to the process that has started the ranks and
// writes the files: fields separated by tabs, each a name, the kind of its value, and the value.
//
//   bytes=i4    us=d1.5    op=sall\treduce    rounds=l1,2.25
//
// Whatever the values are, the row comes back as it was: numbers to the last bit, NaN and infinities too.
std::string EncodeRow(const ResultRow& row);

// Errors: INVALID_ARGUMENT that quotes the field which cannot be read.
absl::StatusOr<ResultRow> DecodeRow(const std::string& line);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ROW_TEXT_H_
