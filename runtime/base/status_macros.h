// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_STATUS_MACROS_H_
#define RONDA_RUNTIME_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// If the status of `expr` is an error, returns it from the calling function.
#define RONDA_RETURN_IF_ERROR(expr)                     \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

// Assigns the value of a StatusOr to `lhs`, which may be a declaration, or returns its error from the calling function.
#define RONDA_ASSIGN_OR_RETURN(lhs, expr) RONDA_ASSIGN_OR_RETURN_(RONDA_CONCAT_(statusor_, __LINE__), lhs, expr)

#define RONDA_CONCAT_(a, b) RONDA_CONCAT_INNER_(a, b)
#define RONDA_CONCAT_INNER_(a, b) a##b
#define RONDA_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return tmp.status();           \
  lhs = *std::move(tmp)

#endif  // RONDA_RUNTIME_BASE_STATUS_MACROS_H_
