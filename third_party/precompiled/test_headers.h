// SPDX-License-Identifier: Apache-2.0

// The headers of GoogleTest, which are precompiled for tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "third_party/precompiled/common_headers.h"
