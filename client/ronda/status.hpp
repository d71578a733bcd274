// SPDX-License-Identifier: Apache-2.0

// Errors of the C++ API. Most functions throw an Error; the functions named try_* return a Status or a Result.
#ifndef RONDA_CLIENT_RONDA_STATUS_HPP_
#define RONDA_CLIENT_RONDA_STATUS_HPP_

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "../ronda.h"

namespace ronda {
// The namespace abi1 is inline, so users write ronda::Error. Its name distinguishes the symbols of these headers from
// the library's own symbols.
inline namespace abi1 {

// The exception that Ronda's functions throw. what() names the tensor and the affected ranks, and gives advice.
class Error : public std::runtime_error {
 public:
  Error(ronda_status code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ronda_status code() const noexcept { return code_; }

  // Returns whether the remaining ranks can continue in the job's next epoch; see ronda_status_is_recoverable().
  bool recoverable() const noexcept { return ronda_status_is_recoverable(code_) != 0; }

 private:
  ronda_status code_;
};

// An Error as a value: RONDA_OK, or a code and a message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ronda_status code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == RONDA_OK; }
  ronda_status code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // Like Error::recoverable(), for this error.
  bool recoverable() const noexcept { return ronda_status_is_recoverable(code_) != 0; }

  void throw_if_error() const {
    if (!ok()) throw Error(code_, message_);
  }

 private:
  ronda_status code_ = RONDA_OK;
  std::string message_;
};

// A T, or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status error) : status_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }

  // Throws the Error if there is no value.
  T& value() & {
    status_.throw_if_error();
    return *value_;
  }
  const T& value() const& {
    status_.throw_if_error();
    return *value_;
  }
  T value() && {
    status_.throw_if_error();
    return *std::move(value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace detail {

// Returns the Status of a C function that has just returned `code` in this thread.
inline Status to_status(ronda_status code) { return code == RONDA_OK ? Status() : Status(code, ronda_last_error()); }

inline Status invalid_argument(std::string message) { return Status(RONDA_ERROR_INVALID_ARGUMENT, std::move(message)); }

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_STATUS_HPP_
