// SPDX-License-Identifier: Apache-2.0

// common_headers.h for tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "third_party/precompiled/common_headers.h"
