// The headers that most unit tests include, compiled once (see parser/pch/standard.h).

#ifndef CKPTFS_TESTS_PCH_GTEST_H_
#define CKPTFS_TESTS_PCH_GTEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parser/pch/standard.h"

#endif
