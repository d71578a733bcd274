// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_VERSION_H_
#define RONDA_RUNTIME_BASE_VERSION_H_

namespace ronda {

// All ranks of a job run the same version, because the protocol between them may change with every version.
inline constexpr char kVersion[] = "0.2.0";

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_VERSION_H_
